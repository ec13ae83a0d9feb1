"""Adapter files: LoRA adapters and control vectors for a model, checked before llama.cpp sees them.

llama.cpp aborts on some of what may be wrong with them, and says of the rest only that loading failed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from blake3 import blake3

from leftoff.engine import gguf
from leftoff.engine.errors import ModelError
from leftoff.engine.fingerprint import Identity, file_fingerprint, identity_of
from leftoff.engine.model_header import model_header
from leftoff.types import Logits

_TYPES = {0: 4.0, 1: 2.0, 30: 2.0, 8: 34 / 32}  # bytes of a number: f32, f16, bf16, q8_0
_MAX_INVOCATION = 1024  # tokens
_EMBEDDING = "token_embd.weight"
_DIRECTION = "direction."

Shapes = dict[str, tuple[int, ...]]  # of a model's tensors


@dataclass(frozen=True)
class LoraFile:
    """A LoRA adapter that fits its model. With `invocation`, tokens of its vocabulary, it is an aLoRA."""

    path: Path
    fingerprint: str
    identity: Identity
    invocation: tuple[int, ...] = ()
    task: str = ""  # what it was trained for, in the words of the file
    prefix: str = ""  # of prompts for it

    @property
    def num_bytes(self) -> int:
        return self.identity.num_bytes

    def require_same(self) -> None:
        """Raises `ModelError` if another file lies in its place now."""
        if _identity_of(self.path) != self.identity:
            raise ModelError(f"{self.path} is not the adapter any more that was checked: start the server again")


@dataclass(frozen=True)
class ControlVector:
    """A direction for each layer but the first, in a row each, which is added to what the layer puts out."""

    first_layer: int
    last_layer: int
    rows: Logits = field(repr=False, compare=False)
    fingerprint: str = ""


def _identity_of(path: Path) -> Identity:
    """Raises `ModelError` if there is no file."""
    try:
        return identity_of(path)
    except OSError as error:
        raise ModelError(f"there is no adapter or control vector to read at {path} ({error.strerror})") from error


def read_lora(path: Path, model: Path, num_tokens: int, num_layers: int | None = None) -> LoraFile:
    """Checks a LoRA adapter for a model with so many tokens in its vocabulary. Raises `ModelError`.

    With `num_layers`, only so many of the model are loaded: a next-token (MTP) layer behind them is not.
    """
    identity = _identity_of(path)
    header, wanted = _header(path), model_header(model)
    try:
        if (kind := gguf.read_text(path, b"general.type")) != "adapter":
            raise ModelError(f"{path} is no adapter: its general.type is {kind!r}")
        if (kind := gguf.read_text(path, b"adapter.type")) != "lora":
            raise ModelError(f"{path} is an adapter of type {kind!r}: leftoff reads LoRA adapters")
        if header.architecture != wanted.architecture:
            raise ModelError(
                f"{path} is an adapter for {header.architecture} models: {model.name} is {wanted.architecture}"
            )
        if not np.isfinite(gguf.read_float(path, b"adapter.lora.alpha")):
            raise ModelError(f"{path} is damaged: its adapter.lora.alpha is no number")
        invocation = gguf.read_numbers(path, b"adapter.alora.invocation_tokens")
        task, prefix = (
            gguf.read_text(path, name) for name in (b"adapter.lora.task_name", b"adapter.lora.prompt_prefix")
        )
    except gguf.DAMAGED as error:
        raise ModelError(f"{path} is damaged, or no adapter that llama.cpp can read: {error}") from error
    if len(invocation) > _MAX_INVOCATION or any(token >= num_tokens for token in invocation):
        raise ModelError(f"{path} is invoked by tokens that {model.name} does not have: it is for another vocabulary")
    _check_pairs(path, header.tensors, _shapes(wanted), model.name)
    if num_layers is not None:
        _check_layers(path, header.tensors, num_layers)
    fingerprint = file_fingerprint(path)
    file = LoraFile(path, fingerprint, identity, invocation, task, prefix)
    file.require_same()
    return file


def read_control_vectors(files: Sequence[tuple[Path, float]], model: Path, layers: tuple[int, int]) -> ControlVector:
    """The sum of control vectors, each times its scale, for the layers from the first to the last; 0 is the end."""
    shapes = _shapes(model_header(model))
    width = shapes[_EMBEDDING][0]
    num_layers = 1 + max(int(name.split(".")[1]) for name in shapes if name.startswith("blk."))
    first, last = max(1, layers[0]), min(layers[1] or num_layers - 1, num_layers - 1)
    if first > last:
        raise ModelError(f"--control-vector-layers {layers[0]},{layers[1]}: {model.name} has {num_layers} layers")
    rows = np.zeros((num_layers - 1, width), np.float32)
    for path, scale in files:
        rows += np.float32(scale) * _directions(path, num_layers, width)
    hashed = blake3(rows[first - 1 : last].tobytes()).hexdigest()
    return ControlVector(first, last, rows, f"{first} {last} {hashed}")


def _directions(path: Path, num_layers: int, width: int) -> Logits:
    _identity_of(path)
    rows, found = np.zeros((num_layers - 1, width), np.float32), 0
    for tensor in _header(path).tensors:
        number = tensor.name.removeprefix(_DIRECTION)
        if number == tensor.name or not number.isdecimal() or not 0 < int(number) < num_layers:
            raise ModelError(f"{path} is no control vector for this model: it has a tensor {tensor.name!r}")
        if tensor.shape != (width,) or tensor.kind != 0 or tensor.num_bytes < 4 * width:
            raise ModelError(f"{path}: {tensor.name} must be {width} numbers of type f32, as this model is wide")
        with path.open("rb") as file:
            file.seek(tensor.start)
            rows[int(number) - 1] = np.frombuffer(file.read(4 * width), "<f4")
        found += 1
    if not found or not np.isfinite(rows).all():
        raise ModelError(f"{path} is no control vector: it has no direction, or one that is no number")
    return rows


def _shapes(header: gguf.Header) -> Shapes:
    return {tensor.name: tensor.shape for tensor in header.tensors}


def _header(path: Path) -> gguf.Header:
    try:
        with path.open("rb") as file:
            magic = file.read(len(gguf.MAGIC))
        if magic != gguf.MAGIC:
            raise ModelError(f"{path} is not a GGUF file: convert the adapter with llama.cpp's convert_lora_to_gguf.py")
        return gguf.read_header(path)
    except (OSError, *gguf.DAMAGED) as error:
        raise ModelError(f"{path} is damaged, or cannot be read: {error}") from error


def _check_pairs(path: Path, tensors: Sequence[gguf.Tensor], shapes: Shapes, model: str) -> None:
    """Each tensor is one of a pair, whose product has the shape of a tensor of the model."""
    pairs: dict[str, dict[str, tuple[int, ...]]] = {}
    for tensor in tensors:
        name, _, part = tensor.name.rpartition(".")
        if part not in ("lora_a", "lora_b"):
            raise ModelError(f"{path} has a tensor {tensor.name!r}, which is no part of a LoRA adapter")
        if tensor.kind not in _TYPES:
            raise ModelError(f"{path}: {tensor.name} is of a type that no adapter has here: use f32, f16, bf16 or q8_0")
        if 0 in tensor.shape or tensor.num_bytes < int(np.prod(tensor.shape, dtype=object) * _TYPES[tensor.kind]):
            raise ModelError(f"{path} is damaged: {tensor.name} is not all there. Fetch the file again")
        pairs.setdefault(name, {})[part] = tensor.shape
    if not pairs:
        raise ModelError(f"{path} has no tensors")
    for name, pair in pairs.items():
        if name not in shapes:
            raise ModelError(f"{path} adapts {name}, which {model} does not have: it is for another model")
        if len(pair) < 2:
            raise ModelError(f"{path} is damaged: it has one of the two tensors for {name}")
        if not _fits(name, pair["lora_a"], pair["lora_b"], shapes[name]):
            raise ModelError(
                f"{path} does not fit {model}: {name} has the shape {shapes[name]}, the adapter's parts"
                f" {pair['lora_a']} and {pair['lora_b']}"
            )


def _check_layers(path: Path, tensors: Sequence[gguf.Tensor], num_layers: int) -> None:
    for name in (tensor.name for tensor in tensors):
        if name.startswith("blk.") and int(name.split(".")[1]) >= num_layers:
            raise ModelError(
                f"{path} adapts {name.rpartition('.')[0]}, of the next-token (MTP) layer, which is loaded only if "
                "it drafts (--draft auto or mtp, no --deterministic, no EAGLE-3 head): start the server so, or convert "
                "the adapter without this layer"
            )


def _fits(name: str, a: tuple[int, ...], b: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Shapes as ggml has them: rows last. The two of the embedding are flipped, and their ranks come first."""
    if len(a) < 2 or len(b) < 2 or len(shape) < 2:
        return False
    if name == _EMBEDDING:
        return (b[1], a[1]) == shape[:2] and a[0] == b[0] and len(a) == len(b) == 2
    is_product = (a[0], b[1]) == shape[:2] and a[1] == b[0]
    return is_product and all(part[2:] == shape[2:] for part in (a, b))
