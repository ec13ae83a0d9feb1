"""Looks into a GGUF file for what llama.cpp does not survive: it aborts on a vocabulary that names a token twice.

Everything else that may be wrong with a file llama.cpp refuses by itself.
"""

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

MAGIC = b"GGUF"
_TOKENS = b"tokenizer.ggml.tokens"
_STRING, _ARRAY = 8, 9
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
_LENGTH = struct.Struct("<Q")
_HEADER = struct.Struct("<4sIQQ")  # magic, version, tensors, keys
_ARRAY_HEADER = struct.Struct("<IQ")  # type, length


def doubled_token(path: Path) -> bytes | None:
    """A token that the vocabulary names twice, if there is one. A file that cannot be read to the end has none."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        try:
            tokens = _tokens(data)
            seen: set[bytes] = set()
            return next((token for token in tokens if token in seen or seen.add(token)), None)  # type: ignore[func-returns-value]
        except (struct.error, KeyError, OverflowError):
            return None  # cut short or damaged: llama.cpp says so itself


def _tokens(data: mmap.mmap) -> Iterator[bytes]:
    _, _, _, num_keys = _HEADER.unpack_from(data)
    offset = _HEADER.size
    for _ in range(num_keys):
        key, offset = _string(data, offset)
        (kind,) = struct.unpack_from("<I", data, offset)
        offset += 4
        if key == _TOKENS and kind == _ARRAY:
            _, length = _ARRAY_HEADER.unpack_from(data, offset)
            yield from _strings(data, offset + _ARRAY_HEADER.size, length)
            return
        offset = _skip(data, offset, kind)


def _string(data: mmap.mmap, offset: int) -> tuple[bytes, int]:
    (length,) = _LENGTH.unpack_from(data, offset)
    start = offset + _LENGTH.size
    return data[start : start + length], start + length


def _strings(data: mmap.mmap, offset: int, length: int) -> Iterator[bytes]:
    for _ in range(length):
        text, offset = _string(data, offset)
        yield text


def _skip(data: mmap.mmap, offset: int, kind: int) -> int:
    if kind == _STRING:
        return _string(data, offset)[1]
    if kind != _ARRAY:
        return offset + _SIZES[kind]
    inner, length = _ARRAY_HEADER.unpack_from(data, offset)
    offset += _ARRAY_HEADER.size
    if inner == _STRING:
        for _ in range(length):
            offset = _string(data, offset)[1]
        return offset
    return offset + int(_SIZES[inner] * length)
