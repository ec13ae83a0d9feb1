"""Chooses the next token from logits: one llama.cpp sampler chain per sequence."""

import ctypes as C
import secrets

import numpy as np
import numpy.typing as npt

from leftoff.engine.binding import abi
from leftoff.engine.context import Context
from leftoff.engine.model import Model
from leftoff.engine.sampler_chain import SamplerChain
from leftoff.sampling import Sampling
from leftoff.types import Logits, Tokens

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])


def log_probabilities(logits: Logits) -> npt.NDArray[np.float64]:
    """The log-probability of every token, before any sampling parameter is applied."""
    shifted = logits.astype(np.float64) - float(logits.max())
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))


class Sampler:
    """The sampler chain of one sequence. It remembers the tokens that it chose, for the penalties."""

    def __init__(self, model: Model, sampling: Sampling) -> None:
        self._dll = model.library.dll
        self._vocabulary = model.vocabulary
        self._is_argmax = sampling.is_argmax
        # these take the logarithm of every probability, or give forbidden tokens one that is not zero
        self._needs_masked_dropped = sampling.typical_p < 1.0 or sampling.mirostat > 0 or sampling.is_adaptive
        self.seed = secrets.randbits(32) if sampling.seed is None else sampling.seed & 0xFFFFFFFF
        self._chain: int | None = self._dll.llama_sampler_chain_init(self._dll.llama_sampler_chain_default_params())
        links = () if self._is_argmax else SamplerChain(model, sampling, self.seed).links()
        for link in links:
            self._dll.llama_sampler_chain_add(self._chain, link)

    def close(self) -> None:
        if self._chain is not None:
            self._dll.llama_sampler_free(self._chain)
            self._chain = None

    def __del__(self) -> None:
        self.close()

    def accept(self, tokens: Tokens) -> None:
        """Adds tokens of the prompt to those that the penalties look at."""
        self._vocabulary.check(tokens)
        for token in tokens.tolist():
            self._dll.llama_sampler_accept(self._chain, token)

    def sample(self, context: Context, row: int) -> int:
        """Chooses a token from one row of the last batch."""
        if self._is_argmax:  # llama.cpp would first make a list of the whole vocabulary
            return int(context.logits(row).argmax())
        assert self._chain is not None
        return context.sample(self._chain, row)

    def sample_masked(self, context: Context, row: int) -> int:
        """`sample` where a grammar has set the logits of forbidden tokens to minus infinity."""
        logits = context.logits(row)
        if self._is_argmax:
            return int(logits.argmax())
        chosen = None if self._needs_masked_dropped else self.sample(context, row)
        return self._unless_forbidden(chosen, logits)

    def sample_from(self, logits: Logits) -> int:
        """Chooses from copied logits exactly as `sample` and `sample_masked` do from the batch.

        Also from the same candidates: llama.cpp's sorting orders tokens of one logit by how many others there are.
        """
        if self._is_argmax:
            return int(logits.argmax())
        chosen = None if self._needs_masked_dropped else self._choose(logits, np.arange(logits.size))
        return self._unless_forbidden(chosen, logits)

    def _unless_forbidden(self, chosen: int | None, logits: Logits) -> int:
        """Keeps the token that was chosen; if it is forbidden, or there is none, samples among the allowed tokens."""
        if chosen is not None and logits[chosen] > -np.inf:
            return chosen
        return self._choose(logits, np.flatnonzero(logits > -np.inf))

    def _choose(self, logits: Logits, tokens: npt.NDArray[np.intp]) -> int:
        candidates = np.empty(tokens.size, _CANDIDATE)
        candidates["id"] = tokens
        candidates["logit"] = logits[tokens]
        candidates["p"] = 0
        array = abi.Candidates(candidates.ctypes.data, candidates.size, -1, False)
        self._dll.llama_sampler_apply(self._chain, C.byref(array))
        # the chain may sort the candidates in place, cut off the first ones, or point at a buffer of its own
        chosen = C.cast(array.data + array.selected * _CANDIDATE.itemsize, C.POINTER(C.c_int32))[0]
        self._dll.llama_sampler_accept(self._chain, chosen)
        return int(chosen)
