"""DRY, the link that discourages to go on with a sequence of tokens that was there before.

A breaker, such as a line's end, is where a sequence starts anew. llama.cpp looks for each breaker in every token of
the vocabulary: 20 ms for 100,000 tokens. So a link once made is kept, and copies of it are given out.
"""

import ctypes as C
import functools

from leftoff.engine.model import Model

_NUM_KEPT = 8


def dry_link(
    model: Model, multiplier: float, base: float, allowed_length: int, last_n: int, breakers: tuple[str, ...]
) -> int:
    original = _original(model, multiplier, base, allowed_length, last_n, breakers)
    link: int = model.library.dll.llama_sampler_clone(original.handle)
    return link


class _Original:
    """A link that is in no chain, and is freed when nobody keeps it."""

    def __init__(self, dll: C.CDLL, handle: int) -> None:
        self._dll = dll
        self.handle = handle

    def __del__(self) -> None:
        self._dll.llama_sampler_free(self.handle)


@functools.lru_cache(maxsize=_NUM_KEPT)
def _original(
    model: Model, multiplier: float, base: float, allowed_length: int, last_n: int, breakers: tuple[str, ...]
) -> _Original:
    dll = model.library.dll
    texts = [breaker.encode() for breaker in breakers]
    array = (C.c_char_p * len(texts))(*texts)
    vocabulary = dll.llama_model_get_vocab(model.handle)
    handle = dll.llama_sampler_init_dry(vocabulary, multiplier, base, allowed_length, last_n, array, len(texts))
    return _Original(dll, handle)
