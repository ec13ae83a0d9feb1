"""Chooses the next token from logits: one llama.cpp sampler chain per sequence."""

import ctypes as C
import secrets
from collections.abc import Iterator

import numpy as np

from leftoff.core import Logits, Sampling, Tokens
from leftoff.engine import abi
from leftoff.engine.context import Context
from leftoff.engine.model import Model

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
_MOST_REMEMBERED = 1 << 20  # llama.cpp allocates room for all of them at once, and dies where it cannot


class Sampler:
    """Remembers what it chose, for the penalties. Not shared between sequences."""

    def __init__(self, model: Model, sampling: Sampling) -> None:
        self._dll = model.library.dll
        self._vocabulary = model.vocabulary
        self.seed = secrets.randbits(32) if sampling.seed is None else sampling.seed & 0xFFFFFFFF
        self._chain: int | None = self._dll.llama_sampler_chain_init(self._dll.llama_sampler_chain_default_params())
        for link in self._links(sampling):
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
        assert self._chain is not None
        return context.sample(self._chain, row)

    def sample_from(self, logits: Logits) -> int:
        """Chooses from logits that were kept, exactly as `sample` would have from the batch."""
        candidates = np.empty(self._vocabulary.size, _CANDIDATE)
        candidates["id"] = np.arange(self._vocabulary.size)
        candidates["logit"] = logits
        candidates["p"] = 0
        array = abi.Candidates(candidates.ctypes.data, candidates.size, -1, False)
        self._dll.llama_sampler_apply(self._chain, C.byref(array))
        # the chain may sort the candidates in place or point at a buffer of its own
        chosen = C.cast(array.data + array.selected * _CANDIDATE.itemsize, C.POINTER(C.c_int32))[0]
        self._dll.llama_sampler_accept(self._chain, chosen)
        return int(chosen)

    def _links(self, sampling: Sampling) -> Iterator[int]:
        """In llama-server's order: what changes logits, what narrows the choice, what chooses."""
        dll = self._dll
        if sampling.logit_bias:
            yield self._logit_bias(sampling.logit_bias)
        if sampling.has_penalties:
            yield dll.llama_sampler_init_penalties(
                self._vocabulary.size,
                min(sampling.repeat_last_n, _MOST_REMEMBERED),
                sampling.repeat_penalty,
                sampling.frequency_penalty,
                sampling.presence_penalty,
            )
        if sampling.is_greedy:
            yield dll.llama_sampler_init_greedy()
            return
        if sampling.top_k > 0:
            yield dll.llama_sampler_init_top_k(min(sampling.top_k, self._vocabulary.size))
        if sampling.top_p < 1.0:
            yield dll.llama_sampler_init_top_p(sampling.top_p, 1)
        if sampling.min_p > 0.0:
            yield dll.llama_sampler_init_min_p(sampling.min_p, 1)
        yield dll.llama_sampler_init_temp(sampling.temperature)
        yield dll.llama_sampler_init_dist(self.seed)

    def _logit_bias(self, biases: tuple[tuple[int, float], ...]) -> int:
        for token, _ in biases:
            self._vocabulary.check_id(token)
        array = (abi.LogitBias * len(biases))(*(abi.LogitBias(token, bias) for token, bias in biases))
        link: int = self._dll.llama_sampler_init_logit_bias(self._vocabulary.size, len(biases), array)
        return link
