"""Chooses the next token from logits: one llama.cpp sampler chain per sequence."""

import ctypes as C
import secrets

import numpy as np

from leftoff.engine.binding import abi
from leftoff.engine.context import Context
from leftoff.engine.links import Links
from leftoff.engine.model import Model
from leftoff.types import Logits, Sampling, Tokens

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


class Sampler:
    """Remembers what it chose, for the penalties. Not shared between sequences."""

    def __init__(self, model: Model, sampling: Sampling) -> None:
        self._dll = model.library.dll
        self._vocabulary = model.vocabulary
        self._takes_the_likeliest = sampling.takes_the_likeliest
        # These take the logarithms of all chances, also of those that are zero, or make a chance of none.
        self._minds_masks = sampling.typical_p < 1.0 or sampling.mirostat > 0 or sampling.is_adaptive
        self.seed = secrets.randbits(32) if sampling.seed is None else sampling.seed & 0xFFFFFFFF
        self._chain: int | None = self._dll.llama_sampler_chain_init(self._dll.llama_sampler_chain_default_params())
        for link in Links(model, sampling, self.seed):
            self._dll.llama_sampler_chain_add(self._chain, link)

    def close(self) -> None:
        if self._chain is not None:
            self._dll.llama_sampler_free(self._chain)
            self._chain = None

    def __del__(self) -> None:
        self.close()

    def accept(self, tokens: Tokens) -> None:
        """Counts tokens of the prompt, for the penalties."""
        self._vocabulary.check(tokens)
        for token in tokens.tolist():
            self._dll.llama_sampler_accept(self._chain, token)

    def sample(self, context: Context, row: int) -> int:
        """Chooses from a row of the last batch, and remembers the choice."""
        if self._takes_the_likeliest:  # llama.cpp would first make a list of the whole vocabulary
            return int(context.logits(row).argmax())
        assert self._chain is not None
        return context.sample(self._chain, row)

    def sample_masked(self, context: Context, row: int) -> int:
        """The same, where tokens are forbidden by a logit of minus infinity."""
        logits = context.logits(row)
        if self._minds_masks:
            return self.sample_from(logits)
        chosen = self.sample(context, row)
        return chosen if logits[chosen] > -np.inf else self.sample_from(logits)

    def sample_from(self, logits: Logits) -> int:
        """Chooses from logits that were kept, exactly as `sample` would have from the batch.

        What is forbidden is not even listed.
        """
        if self._takes_the_likeliest:
            return int(logits.argmax())
        allowed = np.flatnonzero(logits > -np.inf)
        candidates = np.empty(allowed.size, _CANDIDATE)
        candidates["id"] = allowed
        candidates["logit"] = logits[allowed]
        candidates["p"] = 0
        array = abi.Candidates(candidates.ctypes.data, candidates.size, -1, False)
        self._dll.llama_sampler_apply(self._chain, C.byref(array))
        # the chain may sort the candidates in place, cut off the first ones, or point at a buffer of its own
        chosen = C.cast(array.data + array.selected * _CANDIDATE.itemsize, C.POINTER(C.c_int32))[0]
        self._dll.llama_sampler_accept(self._chain, chosen)
        return int(chosen)
