"""Reads the header of a GGUF file without llama.cpp: its metadata, and its tensors with their shapes and sizes.

A file that is damaged is for llama.cpp to report: here it raises one of `DAMAGED`.
"""

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAGIC = b"GGUF"

_TOKENS_KEY, _ARCHITECTURE_KEY = b"tokenizer.ggml.tokens", b"general.architecture"
_ALIGNMENT_KEY, _CAUSAL_KEY = b"general.alignment", b".attention.causal"  # the second after the architecture
_DEFAULT_ALIGNMENT = 32
_UINT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 6, 7, 8, 9
_SCALAR_BYTES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
HEADER = struct.Struct("<4sIQQ")  # magic, version, number of tensors, number of keys
_U32, _F32 = struct.Struct("<I"), struct.Struct("<f")
_ARRAY_HEADER = struct.Struct("<IQ")  # type, length
_STRING_HEADER = struct.Struct("<Q")  # length
_TENSOR_END = struct.Struct("<IQ")  # type, offset of its data

DAMAGED = (struct.error, KeyError, OverflowError, ValueError)


@dataclass(frozen=True)
class Tensor:
    """A tensor of a model file; its bytes include the padding behind it."""

    name: str
    num_bytes: int
    shape: tuple[int, ...] = ()
    kind: int = 0  # ggml's number of its data type
    start: int = 0  # of its data in the file


@dataclass(frozen=True)
class Header:
    """Architecture, vocabulary size and tensors of a GGUF file."""

    architecture: str
    num_tokens: int  # of the vocabulary
    tensors: tuple[Tensor, ...]
    is_causal: bool = True  # a token is computed from those before it; an encoder's from all of the text


@dataclass(frozen=True)
class _Key:
    name: bytes
    kind: int
    start: int  # of its value


def vocabulary_texts(path: Path) -> Iterator[bytes]:
    """The texts of the vocabulary, in their order."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for key in _keys(data):
            if key.name == _TOKENS_KEY and key.kind == _ARRAY:
                (_, length), offset = _ARRAY_HEADER.unpack_from(data, key.start), key.start + _ARRAY_HEADER.size
                for _ in range(length):
                    text, offset = read_string(data, offset)
                    yield text
                return


def read_header(path: Path) -> Header:
    """The header of one file. Of a split model each part has its own tensors, and the first one all the rest."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        architecture, num_tokens, alignment, end = b"", 0, _DEFAULT_ALIGNMENT, HEADER.size
        is_causal = True
        for key in _keys(data):
            end = key.start
            if key.name == _ARCHITECTURE_KEY and key.kind == _STRING:
                architecture = read_string(data, key.start)[0]
            elif key.name == _TOKENS_KEY and key.kind == _ARRAY:
                num_tokens = _ARRAY_HEADER.unpack_from(data, key.start)[1]
            elif key.name == _ALIGNMENT_KEY and key.kind == _UINT32:
                (alignment,) = _U32.unpack_from(data, key.start)
            elif key.name.endswith(_CAUSAL_KEY) and key.kind == _BOOL:
                is_causal = bool(data[key.start])
        return Header(architecture.decode(), num_tokens, _tensors(data, end, alignment), is_causal)


def is_whole(path: Path) -> bool:
    """False for a file that ends in its header, or before its last tensor. Other damage is llama.cpp's to report."""
    try:
        tensors = read_header(path).tensors
    except (struct.error, OverflowError):
        return False
    except (KeyError, ValueError):
        return True
    return not tensors or tensors[-1].num_bytes > 0


def read_text(path: Path, name: bytes) -> str:
    """A text of the metadata; empty if there is none of this name."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        texts = (read_string(data, key.start)[0] for key in _keys(data) if key.name == name and key.kind == _STRING)
        return next(texts, b"").decode()


def read_float(path: Path, name: bytes) -> float:
    """A number of the metadata. Raises `KeyError` if there is none of this name and type."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for key in _keys(data):
            if key.name == name and key.kind == _FLOAT32:
                return float(_F32.unpack_from(data, key.start)[0])
    raise KeyError(name.decode())


def read_numbers(path: Path, name: bytes) -> tuple[int, ...]:
    """A list of numbers of the metadata, which are u32; empty if there is none of this name."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        for key in _keys(data):
            if key.name == name:
                kind, length = _ARRAY_HEADER.unpack_from(data, key.start)
                if key.kind != _ARRAY or kind != _UINT32:
                    raise ValueError(f"{name.decode()} is no list of u32")
                return struct.unpack_from(f"<{length}I", data, key.start + _ARRAY_HEADER.size)
    return ()


def _tensors(data: mmap.mmap, offset: int, alignment: int) -> tuple[Tensor, ...]:
    found = []
    for _ in range(HEADER.unpack_from(data)[2]):
        name, offset = read_string(data, offset)
        (num_dimensions,) = _U32.unpack_from(data, offset)
        shape = struct.unpack_from(f"<{num_dimensions}Q", data, offset + _U32.size)
        offset += _U32.size + 8 * num_dimensions
        kind, start = _TENSOR_END.unpack_from(data, offset)
        found.append((start, name.decode(), shape, kind))
        offset += _TENSOR_END.size
    found.sort()
    first = -(-offset // alignment) * alignment
    ends = [start for start, *_ in found[1:]] + [len(data) - first]
    return tuple(
        Tensor(name, end - start, shape, kind, first + start)
        for (start, name, shape, kind), end in zip(found, ends, strict=False)
    )


def _keys(data: mmap.mmap) -> Iterator[_Key]:
    """The keys of the metadata, and a last one without a name where it ends."""
    offset = HEADER.size
    for _ in range(HEADER.unpack_from(data)[3]):
        name, offset = read_string(data, offset)
        (kind,) = _U32.unpack_from(data, offset)
        start = offset + _U32.size
        yield _Key(name, kind, start)
        offset = skip_value(data, start, kind)
    yield _Key(b"", _ARRAY, offset)


def read_string(data: mmap.mmap, offset: int) -> tuple[bytes, int]:
    """A text with its length before it, and where it ends."""
    (length,) = _STRING_HEADER.unpack_from(data, offset)
    start = offset + _STRING_HEADER.size
    return data[start : start + length], start + length


def skip_value(data: mmap.mmap, offset: int, kind: int) -> int:
    """Where a value of the metadata ends."""
    if kind == _STRING:
        return read_string(data, offset)[1]
    if kind != _ARRAY:
        return offset + _SCALAR_BYTES[kind]
    inner, length = _ARRAY_HEADER.unpack_from(data, offset)
    offset += _ARRAY_HEADER.size
    if inner != _STRING:
        return offset + int(_SCALAR_BYTES[inner] * length)
    for _ in range(length):
        offset += _STRING_HEADER.size + _STRING_HEADER.unpack_from(data, offset)[0]
    return offset
