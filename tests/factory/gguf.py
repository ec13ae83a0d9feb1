"""Makes a model from metadata alone, through the library, and writes it as a GGUF file.

The library knows which tensors an architecture has and what shape they take; it offers them one by one for filling.
The file is then written from the same metadata, not by the library's own saver, which drops the chat template. This
module knows neither architectures nor good weights.
"""

import ctypes
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from leftoff.engine.binding.abi import ModelParams
from leftoff.engine.binding.library import load_library

Wide = npt.NDArray[np.uint64]
Value = bool | int | float | str | list[int] | list[float] | list[str] | Wide
Floats = npt.NDArray[np.float32]

_pointer = ctypes.c_void_p
_text = ctypes.c_char_p
_SetTensor = ctypes.CFUNCTYPE(None, _pointer, _pointer)

_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "gguf_init_empty": (_pointer, []),
    "gguf_free": (None, [_pointer]),
    "gguf_set_val_bool": (None, [_pointer, _text, ctypes.c_bool]),
    "gguf_set_val_u32": (None, [_pointer, _text, ctypes.c_uint32]),
    "gguf_set_val_f32": (None, [_pointer, _text, ctypes.c_float]),
    "gguf_set_val_str": (None, [_pointer, _text, _text]),
    "gguf_set_arr_data": (None, [_pointer, _text, ctypes.c_int, _pointer, ctypes.c_size_t]),
    "gguf_set_arr_str": (None, [_pointer, _text, ctypes.POINTER(_text), ctypes.c_size_t]),
    "gguf_add_tensor": (None, [_pointer, _pointer]),
    "gguf_set_tensor_type": (None, [_pointer, _text, ctypes.c_int]),
    "gguf_write_to_file": (ctypes.c_bool, [_pointer, _text, ctypes.c_bool]),
    "ggml_set_name": (_pointer, [_pointer, _text]),
    "ggml_get_name": (_text, [_pointer]),
    "ggml_nelements": (ctypes.c_int64, [_pointer]),
    "ggml_nrows": (ctypes.c_int64, [_pointer]),
    "ggml_backend_tensor_set": (None, [_pointer, _pointer, ctypes.c_size_t, ctypes.c_size_t]),
    "llama_model_init_from_user": (_pointer, [_pointer, _SetTensor, _pointer, ModelParams]),
}
_ARRAY_INT32, _ARRAY_FLOAT32, _ARRAY_UINT64 = 5, 6, 10


class BuildError(Exception):
    """The library would not make or write the model."""


@dataclass(frozen=True)
class Tensor:
    """A tensor that waits for its values; `columns` is the number of inputs of each of its `rows` outputs."""

    name: str
    rows: int
    columns: int


Fill = Callable[[Tensor], Floats]


def write_model(path: Path, metadata: Mapping[str, Value], fill: Fill, omit: Collection[str] = ()) -> None:
    """Make the model that `metadata` describes, with the values that `fill` gives, and write it to `path`.

    Tensors whose name contains one of `omit` are left out of the file.
    """
    call = bind()
    with open_gguf(call, metadata) as gguf, open_model(call, gguf) as tensors:
        for tensor, address in tensors.items():
            if not any(part in tensor.name for part in omit):
                values = np.ascontiguousarray(fill(tensor), np.float32)
                call.ggml_backend_tensor_set(address, values.ctypes.data, 0, values.nbytes)
                call.gguf_add_tensor(gguf, address)
        if not call.gguf_write_to_file(gguf, str(path).encode(), False):
            raise BuildError(f"cannot write {path}")


@cache
def bind() -> ctypes.CDLL:
    """The library with those functions typed that only the factory calls."""
    dll = load_library().dll
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(dll, name)
        function.restype, function.argtypes = result, arguments
    return dll


@contextmanager
def open_gguf(call: ctypes.CDLL, metadata: Mapping[str, Value]) -> Iterator[int]:
    """A GGUF with metadata and no tensors yet."""
    gguf = call.gguf_init_empty()
    try:
        for key, value in metadata.items():
            _set(call, gguf, key.encode(), value)
        yield gguf
    finally:
        call.gguf_free(gguf)


def _set(call: ctypes.CDLL, gguf: int, key: bytes, value: Value) -> None:
    match value:
        case bool():
            call.gguf_set_val_bool(gguf, key, value)
        case int():
            call.gguf_set_val_u32(gguf, key, value)
        case float():
            call.gguf_set_val_f32(gguf, key, value)
        case str():
            call.gguf_set_val_str(gguf, key, value.encode())
        case _:
            _set_array(call, gguf, key, value)


def _set_array(call: ctypes.CDLL, gguf: int, key: bytes, values: list[int] | list[float] | list[str] | Wide) -> None:
    if isinstance(values, np.ndarray):
        call.gguf_set_arr_data(gguf, key, _ARRAY_UINT64, values.ctypes.data, values.size)
    elif isinstance(values[0], str):
        texts = [str(value).encode() for value in values]
        call.gguf_set_arr_str(gguf, key, (_text * len(texts))(*texts), len(texts))
    else:
        kind, code = (np.float32, _ARRAY_FLOAT32) if isinstance(values[0], float) else (np.int32, _ARRAY_INT32)
        numbers = np.array(values, kind)
        call.gguf_set_arr_data(gguf, key, code, numbers.ctypes.data, numbers.size)


@contextmanager
def open_model(call: ctypes.CDLL, gguf: int) -> Iterator[dict[Tensor, int]]:
    """The tensors of a model with their addresses, which are valid while the model lives.

    A tensor that all layers share is offered once for each of them and stands here once.
    """
    addresses: list[int] = []
    # Only noted here and filled later: an exception inside a callback from C would be lost.
    collect = _SetTensor(lambda address, _: addresses.append(address))
    params = call.llama_model_default_params()
    params.n_gpu_layers = 0
    params.load_mtp = True
    params.no_host = True  # ordinary memory: page-locking it would take longer than everything else
    model = call.llama_model_init_from_user(gguf, collect, None, params)
    if not model:
        raise BuildError(f"the library refused the metadata: {load_library().log.take_errors()}")
    try:
        yield {_describe(call, address): address for address in addresses}
    finally:
        call.llama_model_free(model)


def _describe(call: ctypes.CDLL, address: int) -> Tensor:
    rows = call.ggml_nrows(address)
    return Tensor(call.ggml_get_name(address).decode(), rows, call.ggml_nelements(address) // rows)
