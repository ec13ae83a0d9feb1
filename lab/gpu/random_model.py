"""Writes a random model of real size as a GGUF file, tensor after tensor: it never holds the weights in memory.

The library tells the shapes of a few layers and writes the header; the weights follow as Q8_0 blocks. Small tensors
have the values of the test models. Large ones repeat a pool of random blocks, of the deviation that those would have.
"""

import os
import re
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from lab.gpu.shapes import Shape
from tests.factory.gguf import BuildError, Floats, Tensor, bind, open_gguf, open_model
from tests.factory.vocabulary import small_vocabulary
from tests.factory.weights import Weights

_Q8_0 = 8  # ggml's number
_BLOCK = np.dtype([("scale", "<f2"), ("values", "i1", 32)])
_ALIGNMENT = 32
_MAX_EXACT = 1 << 20  # weights of a tensor that is filled one by one
_SAMPLE_ROWS = 64
_NUM_BLOCKS = 2_097_143  # a prime, so that no two rows of a tensor repeat the same stretch of the pool
_UNIFORM_DEVIATION = (127 * 128 / 3) ** 0.5  # of whole numbers from -127 to 127
_UNQUANTIZED = ("norm", "conv1d", "ffn_gate_inp", "ssm_a", "ssm_d", "lerp")
_PER_TOKEN = ("token_embd.weight", "output.weight")
_NUM_WRITERS = 8
_ADDED = re.compile(r"blk\.(\d+)\.(attn_output|ssm_out|ffn_down)\.weight")  # what a layer adds comes out of these

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class _Place:
    """A tensor of the file: `name` is its own, `tensor.name` that of the layer whose shape it has."""

    name: str
    tensor: Tensor
    address: int

    @property
    def is_quantized(self) -> bool:
        is_matrix = self.tensor.rows > 1 and self.tensor.columns % 32 == 0 and self.name.endswith(".weight")
        return is_matrix and not any(part in self.name for part in _UNQUANTIZED)

    @property
    def num_bytes(self) -> int:
        """The bytes of a tensor, with the padding behind it."""
        num_weights = self.tensor.rows * self.tensor.columns
        num_bytes = num_weights // 32 * _BLOCK.itemsize if self.is_quantized else 4 * num_weights
        return num_bytes + -num_bytes % _ALIGNMENT


def write_random_model(path: Path, shape: Shape, num_active: int | None = None) -> None:
    """Writes the model; a file that is there already is replaced.

    With `num_active`, the layers after so many compute as much as the others and add nothing: the model says what those
    first ones alone would say.
    """
    call = bind()
    with (
        open_gguf(call, shape.beginning.metadata) as few_layers,
        open_model(call, few_layers) as tensors,
        open_gguf(call, shape.metadata) as gguf,
    ):
        places = list(_places(tensors, shape))
        for place in places:
            call.ggml_set_name(place.address, place.name.encode())
            call.gguf_add_tensor(gguf, place.address)
            if place.is_quantized:
                call.gguf_set_tensor_type(gguf, place.name.encode(), _Q8_0)
        if not call.gguf_write_to_file(gguf, str(path).encode(), True):
            raise BuildError(f"cannot write {path}")
    idle = range(num_active, shape.num_layers) if num_active is not None else range(0)
    _write_weights(path, places, _Values(Weights(small_vocabulary().words, shape.recipe.embedding), idle))


def _places(tensors: dict[Tensor, int], shape: Shape) -> Iterator[_Place]:
    made = shape.beginning.layers
    for tensor, address in tensors.items():
        if any(part in tensor.name for part in shape.recipe.omit):
            continue
        first, _, rest = tensor.name.removeprefix("blk.").partition(".")
        if not tensor.name.startswith("blk."):
            yield _Place(tensor.name, tensor, address)
            continue
        letter = made[int(first)]
        if made.index(letter) == int(first):  # another layer like it is in the file as one of these
            for layer in (layer for layer, other in enumerate(shape.layers) if other == letter):
                yield _Place(f"blk.{layer}.{rest}", tensor, address)


def _write_weights(path: Path, places: list[_Place], values: "_Values") -> None:
    """Several tensors at once. What is 0 is not written."""
    file = os.open(path, os.O_RDWR)
    try:
        start = os.fstat(file).st_size
        offsets = [start + int(end) for end in np.cumsum([0, *(place.num_bytes for place in places)])]
        os.ftruncate(file, offsets[-1])
        with ThreadPoolExecutor(_NUM_WRITERS) as pool:
            for _ in pool.map(lambda place, offset: _write(file, offset, values.of(place)), places, offsets):
                pass
    finally:
        os.close(file)


def _write(file: int, offset: int, parts: Iterator[Bytes]) -> None:
    for part in parts:
        num_written = 0
        while num_written < part.size:
            num_written += os.pwrite(file, part.data[num_written:], offset + num_written)
        offset += part.size


@dataclass(frozen=True)
class _Values:
    """The bytes of tensors, in parts. What follows them is 0."""

    weights: Weights
    idle: range = range(0)  # layers that add nothing

    def of(self, place: _Place) -> Iterator[Bytes]:
        layer = _ADDED.fullmatch(place.name)
        if layer is not None and int(layer[1]) in self.idle:
            return
        if not place.is_quantized:
            yield self._exact(place.name, place.tensor.rows, place.tensor.columns).reshape(-1).view(np.uint8)
        elif place.name in _PER_TOKEN:
            yield from self._per_token(place)
        elif place.tensor.rows * place.tensor.columns <= _MAX_EXACT:
            yield quantized(self._exact(place.name, place.tensor.rows, place.tensor.columns))
        else:
            yield from self._pooled(place.name, place.tensor.rows, place.tensor.columns)

    def _per_token(self, place: _Place) -> Iterator[Bytes]:
        """Tokens of the small vocabulary as in the test models; the others can be read, but are never said."""
        num_known = len(small_vocabulary().tokens)
        yield quantized(self._exact(place.name, num_known, place.tensor.columns))
        if place.name != "output.weight":
            yield from self._pooled(place.name, place.tensor.rows - num_known, place.tensor.columns)

    def _pooled(self, name: str, num_rows: int, num_columns: int) -> Iterator[Bytes]:
        """Blocks of the pool, from a place that depends on the name."""
        deviation = float(self._exact(name, _SAMPLE_ROWS, num_columns).std())
        pool = _pool(float(f"{deviation:.1e}"))  # so that there are few of them
        start, num_left = zlib.crc32(name.encode()) % _NUM_BLOCKS, num_rows * num_columns // 32
        while num_left:
            part = pool[start : start + num_left]
            yield part.view(np.uint8)
            start, num_left = 0, num_left - part.size

    def _exact(self, name: str, num_rows: int, num_columns: int) -> Floats:
        return np.ascontiguousarray(self.weights.fill(Tensor(name, num_rows, num_columns)), np.float32)


@cache
def _random_blocks() -> npt.NDArray[np.void]:
    blocks = np.zeros(_NUM_BLOCKS, _BLOCK)
    blocks["values"] = np.random.default_rng(1).integers(-127, 128, (_NUM_BLOCKS, 32), np.int8)
    return blocks


@cache
def _pool(deviation: float) -> npt.NDArray[np.void]:
    """Random blocks whose values have this deviation."""
    blocks = _random_blocks().copy()
    blocks["scale"] = np.float16(deviation / _UNIFORM_DEVIATION)
    return blocks


def quantized(values: Floats) -> Bytes:
    """As Q8_0: the largest of 32 values becomes 127 or -127."""
    rows = values.reshape(-1, 32)
    blocks = np.zeros(len(rows), _BLOCK)
    blocks["scale"] = np.abs(rows).max(axis=1) / 127
    scale = blocks["scale"].astype(np.float32)[:, None]
    blocks["values"] = np.rint(np.divide(rows, scale, where=scale > 0, out=np.zeros_like(rows))).clip(-127, 127)
    return blocks.view(np.uint8)
