"""Random adapters for the models of the factory, as real GGUF files: LoRA, aLoRA and control vectors.

They move the logits by as much as the weights themselves do, so that a state of another adapter shows.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from leftoff.engine import gguf
from leftoff.engine.fingerprint import model_parts

from .cache import folder
from .gguf import Floats, Value
from .projectors import gguf_bytes

RANK = 4
_ADAPTED = ("ffn_down", "ffn_up", "ssm_out", "ssm_in", "attn_output", "attn_q", "attn_qkv", "shortconv.out_proj")


def lora_path(model: Path, seed: int, invocation: Sequence[int] = (), strength: float = 1.0) -> Path:
    """The file of an adapter for this model, made now unless an earlier run has made it."""
    kind = f"alora-{'-'.join(map(str, invocation))}" if invocation else "lora"
    path = folder() / "adapters" / f"{model.stem}-{kind}-{seed}-{strength:g}.gguf"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_aside(path, lora_bytes(model, seed, invocation, strength))
    return path


def lora_bytes(model: Path, seed: int, invocation: Sequence[int] = (), strength: float = 1.0) -> bytes:
    header, rng = gguf.read_header(model_parts(model)[0]), np.random.default_rng(seed)
    tensors: dict[str, Floats] = {}
    for tensor in header.tensors:
        if len(tensor.shape) == 2 and any(f".{name}.weight" in tensor.name for name in _ADAPTED):
            num_in, num_out = tensor.shape
            tensors[f"{tensor.name}.lora_a"] = rng.standard_normal((RANK, num_in), np.float32) / np.float32(num_in**0.5)
            noise = rng.standard_normal((num_out, RANK), np.float32)
            tensors[f"{tensor.name}.lora_b"] = noise * np.float32(strength)
    metadata: dict[str, Value] = {
        "general.type": "adapter",
        "general.architecture": header.architecture,
        "adapter.type": "lora",
        "adapter.lora.alpha": float(RANK),
    }
    if invocation:
        metadata["adapter.alora.invocation_tokens"] = [int(token) for token in invocation]
    return gguf_bytes(metadata, tensors)


def control_vector_bytes(model: Path, seed: int, strength: float = 0.5) -> bytes:
    header, rng = gguf.read_header(model_parts(model)[0]), np.random.default_rng(seed)
    width = next(tensor.shape[0] for tensor in header.tensors if tensor.name == "token_embd.weight")
    num_layers = 1 + max(int(each.name.split(".")[1]) for each in header.tensors if each.name.startswith("blk."))
    noise = {f"direction.{layer}": rng.standard_normal(width, np.float32) for layer in range(1, num_layers)}
    tensors = {name: row * np.float32(strength) for name, row in noise.items()}
    return gguf_bytes({"general.architecture": "controlvector", "controlvector.model_hint": "x"}, tensors)


def write_aside(path: Path, content: bytes) -> None:
    """Written aside and renamed: another process sees the whole file or none."""
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(content)
    unfinished.replace(path)
