"""Writes a random model of real size as a GGUF file, tensor after tensor: it never holds the weights in memory.

The library tells the shapes of a few layers and writes the header; the weights follow as Q8_0 blocks. Small tensors
have the values of the test models. Large ones repeat a pool of random blocks, of the deviation that those would have.
"""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from lab.gpu.shapes import Shape
from tests.factory.gguf import BuildError, Floats, Tensor, bind, open_gguf, open_model
from tests.factory.vocabulary import small_vocabulary
from tests.factory.weights import Weights

_Q8_0 = 8  # ggml's number
_BLOCK = np.dtype([("scale", "<f2"), ("values", "i1", 32)])
_ALIGNMENT = 32
_PERIOD = 4  # layers repeat their tensors after so many: only these are made in memory
_MOST_EXACT = 1 << 20  # weights of a tensor that is filled one by one
_SAMPLE_ROWS = 64
_NUM_BLOCKS = 2_097_143  # a prime, so that no two rows of a tensor repeat the same stretch of the pool
_UNIFORM_DEVIATION = (127 * 128 / 3) ** 0.5  # of whole numbers from -127 to 127
_UNQUANTIZED = ("norm", "conv1d", "ffn_gate_inp", "ssm_a", "ssm_d")
_PER_TOKEN = ("token_embd.weight", "output.weight")

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


def write_random_model(path: Path, shape: Shape) -> None:
    """Writes the model; a file that is there already is replaced."""
    call = bind()
    with (
        open_gguf(call, shape.with_layers(min(_PERIOD, shape.num_layers)).metadata) as few_layers,
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
    values = _Values(Weights(small_vocabulary().words, shape.recipe.embedding))
    with path.open("ab") as file:
        for place in places:
            for part in values.of(place):
                file.write(part.data)
            _pad(file)


def _places(tensors: dict[Tensor, int], shape: Shape) -> Iterator[_Place]:
    for tensor, address in tensors.items():
        if any(part in tensor.name for part in shape.recipe.omit):
            continue
        first, _, rest = tensor.name.removeprefix("blk.").partition(".")
        if not tensor.name.startswith("blk."):
            yield _Place(tensor.name, tensor, address)
            continue
        for layer in range(int(first), shape.num_layers, _PERIOD):
            yield _Place(f"blk.{layer}.{rest}", tensor, address)


def _pad(file: IO[bytes]) -> None:
    file.write(bytes(-file.tell() % _ALIGNMENT))


@dataclass(frozen=True)
class _Values:
    """The bytes of tensors, in parts."""

    weights: Weights

    def of(self, place: _Place) -> Iterator[Bytes]:
        if not place.is_quantized:
            yield self._exact(place.name, place.tensor.rows, place.tensor.columns).view(np.uint8)
        elif place.name in _PER_TOKEN:
            yield from self._per_token(place)
        elif place.tensor.rows * place.tensor.columns <= _MOST_EXACT:
            yield quantized(self._exact(place.name, place.tensor.rows, place.tensor.columns))
        else:
            yield from self._pooled(place.name, place.tensor.rows, place.tensor.columns)

    def _per_token(self, place: _Place) -> Iterator[Bytes]:
        """Tokens of the small vocabulary as in the test models; the others can be read, but are never said."""
        num_known = len(small_vocabulary().tokens)
        num_others = place.tensor.rows - num_known
        yield quantized(self._exact(place.name, num_known, place.tensor.columns))
        if place.name == "output.weight":
            yield np.zeros(num_others * place.tensor.columns // 32 * _BLOCK.itemsize, np.uint8)
        else:
            yield from self._pooled(place.name, num_others, place.tensor.columns)

    def _pooled(self, name: str, num_rows: int, num_columns: int) -> Iterator[Bytes]:
        """Blocks of the pool, from a place that depends on the name."""
        pool = self._pool
        deviation = float(self._exact(name, _SAMPLE_ROWS, num_columns).std())
        pool["scale"] = np.float16(deviation / _UNIFORM_DEVIATION)
        start, num_left = zlib.crc32(name.encode()) % _NUM_BLOCKS, num_rows * num_columns // 32
        while num_left:
            part = pool[start : start + num_left]
            yield part.view(np.uint8)
            start, num_left = 0, num_left - part.size

    @cached_property
    def _pool(self) -> npt.NDArray[np.void]:
        pool = np.zeros(_NUM_BLOCKS, _BLOCK)
        pool["values"] = np.random.default_rng(1).integers(-127, 128, (_NUM_BLOCKS, 32), np.int8)
        return pool

    def _exact(self, name: str, num_rows: int, num_columns: int) -> Floats:
        return np.ascontiguousarray(self.weights.fill(Tensor(name, num_rows, num_columns)), np.float32)


def quantized(values: Floats) -> Bytes:
    """As Q8_0: the largest of 32 values becomes 127 or -127."""
    rows = values.reshape(-1, 32)
    blocks = np.zeros(len(rows), _BLOCK)
    blocks["scale"] = np.abs(rows).max(axis=1) / 127
    scale = blocks["scale"].astype(np.float32)[:, None]
    blocks["values"] = np.rint(np.divide(rows, scale, where=scale > 0, out=np.zeros_like(rows))).clip(-127, 127)
    return blocks.view(np.uint8)
