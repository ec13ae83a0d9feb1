"""Writes a GGUF file: metadata and tensors, with Q8_0 for matrices if wanted. Knows nothing of models."""

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

Value = bool | int | float | str | list[int] | list[str] | list[bool]
Floats = npt.NDArray[np.float32]

_VERSION = 3
_ALIGNMENT = 32
_BLOCK = 32  # values that share one scale in Q8_0
_F32, _Q8_0 = 0, 8
_UINT32, _INT32, _FLOAT32, _BOOL, _STRING, _ARRAY = 4, 5, 6, 7, 8, 9


def write(path: Path, metadata: Mapping[str, Value], tensors: Mapping[str, Floats], *, quantise: bool = True) -> None:
    encoded = {name: _encode(tensor, quantise) for name, tensor in tensors.items()}
    with path.open("wb") as file:
        file.write(struct.pack("<4sIQQ", b"GGUF", _VERSION, len(tensors), len(metadata)))
        for key, value in metadata.items():
            file.write(_string(key) + _value(value))
        offset = 0
        for name, (kind, data) in encoded.items():
            shape = tensors[name].shape[::-1]
            file.write(_string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset))
            offset += -(-len(data) // _ALIGNMENT) * _ALIGNMENT
        for _, data in encoded.values():
            _pad(file)
            file.write(data)
        _pad(file)


def quantised(matrix: Floats) -> bytes:
    """Q8_0: blocks of 32 values, each a half-precision scale and 32 signed bytes."""
    blocks = matrix.reshape(-1, _BLOCK)
    scale = (np.abs(blocks).max(axis=1, keepdims=True) / 127).astype(np.float16)
    inverse = np.divide(1, scale.astype(np.float32), out=np.zeros(scale.shape, np.float32), where=scale > 0)
    values = np.clip(np.rint(blocks * inverse), -127, 127).astype(np.int8)
    return np.concatenate([scale.view(np.int8), values], axis=1).tobytes()


def _encode(tensor: Floats, quantise: bool) -> tuple[int, bytes]:
    """Norms, convolutions and the like stay as they are: they are small, and the library wants them so."""
    if quantise and tensor.ndim == 2 and tensor.shape[1] % _BLOCK == 0:
        return _Q8_0, quantised(tensor)
    return _F32, np.ascontiguousarray(tensor, np.float32).tobytes()


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Value) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", _BOOL, value)
        case int():
            return struct.pack("<II", _UINT32, value)
        case float():
            return struct.pack("<If", _FLOAT32, value)
        case str():
            return struct.pack("<I", _STRING) + _string(value)
        case _:
            return struct.pack("<I", _ARRAY) + _array(value)


def _array(values: list[int] | list[str] | list[bool]) -> bytes:
    texts = [value for value in values if isinstance(value, str)]
    if texts:
        return struct.pack("<IQ", _STRING, len(texts)) + b"".join(map(_string, texts))
    kind, form = (_BOOL, "?") if isinstance(values[0], bool) else (_INT32, "i")
    return struct.pack(f"<IQ{len(values)}{form}", kind, len(values), *values)


def _pad(file: BinaryIO) -> None:
    file.write(b"\0" * (-file.tell() % _ALIGNMENT))
