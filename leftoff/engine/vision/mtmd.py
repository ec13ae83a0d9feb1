"""mtmd.h as ctypes sees it: llama.cpp's library for pictures, and where it is found for a build of llama.cpp."""

import ctypes as C
import functools
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from leftoff.engine.binding import abi
from leftoff.engine.binding.library import Library, open_library
from leftoff.engine.binding.search import found_packages
from leftoff.engine.errors import LibraryError

MARKER = b"<__media__>"  # stands for the picture in a text
TEXT, IMAGE = 0, 1  # mtmd_input_chunk_type

_P, _I32, _U32, _SIZE, _BOOL, _STR = C.c_void_p, C.c_int32, C.c_uint32, C.c_size_t, C.c_bool, C.c_char_p


class ContextParams(C.Structure):
    """mtmd_context_params. Fields that a later build appends are passed on as they came."""

    _fields_ = (
        ("use_gpu", _BOOL),
        ("device", _P),
        ("print_timings", _BOOL),
        ("n_threads", _I32),
        ("image_marker", _P),
        ("media_marker", _P),
        ("flash_attn_type", C.c_int),
        ("warmup", _BOOL),
        ("image_min_tokens", _I32),
        ("image_max_tokens", _I32),
        ("cb_eval", _P),
        ("cb_eval_user_data", _P),
        ("batch_max_tokens", _I32),
        ("progress_callback", _P),
        ("progress_callback_user_data", _P),
        ("later", C.c_uint8 * 128),
    )


class InputText(C.Structure):
    """mtmd_input_text."""

    _fields_ = (("text", _STR), ("text_len", _SIZE), ("add_special", _BOOL), ("parse_special", _BOOL))


class DecoderPosition(C.Structure):
    """mtmd_decoder_pos: where one token of a picture stands."""

    _fields_ = (("t", _U32), ("x", _U32), ("y", _U32), ("z", _U32))


_FUNCTIONS: dict[str, abi.Signature] = {
    "mtmd_context_params_default": (ContextParams, ()),
    "mtmd_default_marker": (_P, ()),
    "mtmd_init_from_file": (_P, (_STR, _P, ContextParams)),
    "mtmd_free": (None, (_P,)),
    "mtmd_log_set": (None, (_P, _P)),
    "mtmd_support_vision": (_BOOL, (_P,)),
    "mtmd_decode_use_mrope": (_BOOL, (_P,)),
    "mtmd_decode_use_non_causal": (_BOOL, (_P, _P)),
    "mtmd_bitmap_init": (_P, (_U32, _U32, _P)),
    "mtmd_bitmap_free": (None, (_P,)),
    "mtmd_input_chunks_init": (_P, ()),
    "mtmd_input_chunks_size": (_SIZE, (_P,)),
    "mtmd_input_chunks_get": (_P, (_P, _SIZE)),
    "mtmd_input_chunks_free": (None, (_P,)),
    "mtmd_input_chunk_get_type": (C.c_int, (_P,)),
    "mtmd_input_chunk_get_tokens_text": (_P, (_P, _P)),
    "mtmd_input_chunk_get_tokens_image": (_P, (_P,)),
    "mtmd_input_chunk_get_n_tokens": (_SIZE, (_P,)),
    "mtmd_input_chunk_get_n_pos": (_I32, (_P,)),
    "mtmd_image_tokens_get_decoder_pos": (DecoderPosition, (_P, _I32, _SIZE)),
    "mtmd_tokenize": (_I32, (_P, _P, _P, _P, _SIZE)),
    "mtmd_encode_chunk": (_I32, (_P, _P)),
    "mtmd_get_output_embd": (_P, (_P,)),
}


@dataclass(frozen=True)
class Mtmd:
    """The functions of mtmd.h, typed, and the llama.cpp that they belong to: it may be another than the engine's."""

    dll: C.CDLL
    library: Library


@functools.cache
def load_mtmd(library: Library) -> Mtmd:
    """The library for pictures of the engine's own build; else that of a package, which encodes on the CPU."""
    own = [library.path, *sorted(library.path.parent.glob("libmtmd*"))]
    others = (package.path for package in found_packages() if package.path.resolve() != library.path.resolve())
    problems = []
    for path in chain(own, others):
        try:
            llama = library if path in own else open_library(path)
            return Mtmd(_bound(path, llama), llama)
        except LibraryError as error:
            problems.append(str(error))
    raise LibraryError(f"no llama.cpp here can read pictures: {'; '.join(problems)}")


def _bound(path: Path, library: Library) -> C.CDLL:
    try:
        dll = library.dll if path == library.path else C.CDLL(str(path.absolute()))
    except OSError as error:
        raise LibraryError(f"{path} cannot be loaded ({error})") from error
    missing = [name for name in _FUNCTIONS if not hasattr(dll, name)]
    if missing:
        raise LibraryError(f"{path} lacks {missing[0]}")
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(dll, name)
        function.restype, function.argtypes = result, arguments
    defaults = dll.mtmd_context_params_default()
    marker = dll.mtmd_default_marker()
    expected = {"use_gpu": True, "media_marker": marker, "image_min_tokens": -1, "image_max_tokens": -1}
    found = {name: getattr(defaults, name) for name in expected}
    if found != expected or C.string_at(marker) != MARKER:
        raise LibraryError(f"{path} lays out mtmd_context_params in a way that leftoff does not know ({found})")
    dll.mtmd_log_set(library.log.callback, None)
    return dll
