"""Gives a model that knows only bytes a vocabulary of them, so that it can be served."""

import mmap
import struct
from pathlib import Path

from leftoff.engine.gguf import HEADER, read_string, skip_value
from tests.factory.vocabulary import small_vocabulary

_NUM_BYTES = 256
_ALIGNMENT = 32
_UINT32, _STRING, _ARRAY = 4, 8, 9


def with_byte_vocabulary(source: Path, target: Path) -> Path:
    """Rewrites the metadata of a GGUF file that has none; its tensors stay as they are."""
    with source.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        magic, version, num_tensors, num_keys = HEADER.unpack_from(data)
        offset, kept = HEADER.size, []
        for _ in range(num_keys):
            start = offset
            key, offset = read_string(data, offset)
            (kind,) = struct.unpack_from("<I", data, offset)
            offset = skip_value(data, offset + 4, kind)
            if not key.startswith(b"tokenizer."):
                kept.append(data[start:offset])
        start = offset
        for _ in range(num_tensors):
            _, offset = read_string(data, offset)
            (num_dimensions,) = struct.unpack_from("<I", data, offset)
            offset += 4 + 8 * num_dimensions + 4 + 8
        kept += _keys()
        head = HEADER.pack(magic, version, num_tensors, len(kept)) + b"".join(kept) + data[start:offset]
        tensors = data[_aligned(offset) :]
    target.write_bytes(head.ljust(_aligned(len(head)), b"\0") + tensors)
    return target


def _keys() -> list[bytes]:
    letters = small_vocabulary().tokens[:_NUM_BYTES]  # of the bytes, in their order
    texts = struct.pack("<IQ", _STRING, _NUM_BYTES) + b"".join(map(_text, letters))
    merges = struct.pack("<IQ", _STRING, 1) + _text(f"{letters[0]} {letters[0]}")  # llama.cpp wants some
    return [
        _key("tokenizer.ggml.model", _STRING, _text("gpt2")),
        _key("tokenizer.ggml.pre", _STRING, _text("qwen2")),
        _key("tokenizer.ggml.tokens", _ARRAY, texts),
        _key("tokenizer.ggml.merges", _ARRAY, merges),
        _key("tokenizer.ggml.eos_token_id", _UINT32, struct.pack("<I", 0)),
    ]


def _key(name: str, kind: int, value: bytes) -> bytes:
    return _text(name) + struct.pack("<I", kind) + value


def _text(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
