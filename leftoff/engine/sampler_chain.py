"""The links of a llama.cpp sampler chain: first those that change logits or drop tokens, then the one that chooses.

llama.cpp aborts the process where nothing was chosen, so every chain ends in exactly one link that chooses.
"""

import ctypes as C
import functools
from collections.abc import Iterator

from leftoff.engine.binding import abi
from leftoff.engine.errors import InputError
from leftoff.engine.model import Model
from leftoff.sampling import COLDEST, Sampling

_MAX_PENALISED = 1 << 20  # llama.cpp allocates memory for all these tokens at once, and aborts where it cannot
_KEEP_ONE = 1
_MIROSTAT_TOKENS = 100  # that mirostat 1 estimates from: llama-server's number
_NO_CHANCE = 1e-30  # relative to the likeliest token's probability: practically never drawn
_NUM_DRY_LINKS = 8


class SamplerChain:
    """Creates the links for one `Sampling`, in order. The caller owns them. A sampler that is off has no link."""

    def __init__(self, model: Model, sampling: Sampling, seed: int) -> None:
        self._model = model
        self._dll = model.library.dll
        self._sampling = sampling
        self._seed = seed
        self._min_keep = max(_KEEP_ONE, sampling.min_keep)

    def links(self) -> Iterator[int]:
        sampling = self._sampling
        yield from self._logit_bias()
        if sampling.is_greedy:
            yield from self._penalties()
            yield from self._dry()
            yield self._dll.llama_sampler_init_greedy()
        elif sampling.mirostat:
            yield self._dll.llama_sampler_init_temp(sampling.temperature)
            yield from self._mirostat()
        else:
            for name in sampling.samplers:
                yield from getattr(self, f"_{name}")()
            yield from self._adaptive_p() if sampling.is_adaptive else self._dist()

    def _logit_bias(self) -> Iterator[int]:
        biases, vocabulary = self._sampling.logit_bias, self._model.vocabulary
        if not biases:
            return
        for token, _ in biases:
            vocabulary.check_id(token)
        array = (abi.LogitBias * len(biases))(*(abi.LogitBias(token, bias) for token, bias in biases))
        yield self._dll.llama_sampler_init_logit_bias(vocabulary.size, len(biases), array)

    def _penalties(self) -> Iterator[int]:
        sampling = self._sampling
        if sampling.has_repeat_penalties:
            yield self._dll.llama_sampler_init_penalties(
                self._model.vocabulary.size,
                _num_penalised(sampling.repeat_last_n),
                sampling.repeat_penalty,
                sampling.frequency_penalty,
                sampling.presence_penalty,
            )

    def _dry(self) -> Iterator[int]:
        sampling = self._sampling
        if sampling.has_dry:
            original = _dry_original(
                self._model,
                sampling.dry_multiplier,
                sampling.dry_base,
                sampling.dry_allowed_length,
                _num_penalised(sampling.dry_penalty_last_n),
                sampling.dry_sequence_breakers,
            )
            yield self._dll.llama_sampler_clone(original.handle)

    def _top_n_sigma(self) -> Iterator[int]:
        if self._sampling.top_n_sigma > 0.0:
            yield self._dll.llama_sampler_init_top_n_sigma(self._sampling.top_n_sigma)

    def _top_k(self) -> Iterator[int]:
        if self._sampling.top_k > 0:
            yield self._dll.llama_sampler_init_top_k(min(self._sampling.top_k, self._model.vocabulary.size))

    def _typ_p(self) -> Iterator[int]:
        if self._sampling.typical_p < 1.0:
            yield self._without_hopeless()
            yield self._dll.llama_sampler_init_typical(self._sampling.typical_p, self._min_keep)

    def _top_p(self) -> Iterator[int]:
        if self._sampling.top_p < 1.0:
            yield self._dll.llama_sampler_init_top_p(self._sampling.top_p, self._min_keep)

    def _min_p(self) -> Iterator[int]:
        if self._sampling.min_p > 0.0:
            yield self._dll.llama_sampler_init_min_p(self._sampling.min_p, self._min_keep)

    def _xtc(self) -> Iterator[int]:
        sampling = self._sampling
        if sampling.has_xtc:
            yield self._dll.llama_sampler_init_xtc(
                sampling.xtc_probability, sampling.xtc_threshold, self._min_keep, self._seed
            )

    def _temperature(self) -> Iterator[int]:
        """Dynamic temperature: between two limits, nearer to the higher one where the model is less sure."""
        sampling = self._sampling
        high = sampling.temperature + sampling.dynatemp_range
        low = max(sampling.temperature - sampling.dynatemp_range, COLDEST * high)
        if high < COLDEST:
            yield self._dll.llama_sampler_init_temp(0.0)
        elif low < high:
            yield self._dll.llama_sampler_init_temp_ext((low + high) / 2, (high - low) / 2, sampling.dynatemp_exponent)
        else:
            yield self._dll.llama_sampler_init_temp(high)

    def _mirostat(self) -> Iterator[int]:
        tau, eta = self._sampling.mirostat_tau, self._sampling.mirostat_eta
        if self._sampling.mirostat == 1:
            yield self._without_hopeless()
            yield self._dll.llama_sampler_init_mirostat(
                self._model.vocabulary.size, self._seed, tau, eta, _MIROSTAT_TOKENS
            )
        else:
            yield self._dll.llama_sampler_init_mirostat_v2(self._seed, tau, eta)

    def _adaptive_p(self) -> Iterator[int]:
        if not self._model.library.has("llama_sampler_init_adaptive_p"):
            raise InputError("adaptive_target: this build of llama.cpp has no such sampler; leave it out")
        yield self._without_hopeless()
        target, decay = self._sampling.adaptive_target, self._sampling.adaptive_decay
        yield self._dll.llama_sampler_init_adaptive_p(target, decay, self._seed)

    def _dist(self) -> Iterator[int]:
        yield self._dll.llama_sampler_init_dist(self._seed)

    def _without_hopeless(self) -> int:
        """Goes before links that take the logarithm of every probability: a forbidden token's would make all NaN."""
        link: int = self._dll.llama_sampler_init_min_p(_NO_CHANCE, _KEEP_ONE)
        return link


def _num_penalised(last_n: int) -> int:
    return _MAX_PENALISED if last_n < 0 else min(last_n, _MAX_PENALISED)


class _OwnedLink:
    """A link outside of any chain, freed with this object."""

    def __init__(self, dll: C.CDLL, handle: int) -> None:
        self._dll = dll
        self.handle = handle

    def __del__(self) -> None:
        self._dll.llama_sampler_free(self.handle)


@functools.lru_cache(maxsize=_NUM_DRY_LINKS)
def _dry_original(
    model: Model, multiplier: float, base: float, allowed_length: int, last_n: int, breakers: tuple[str, ...]
) -> _OwnedLink:
    """The DRY link to clone. llama.cpp searches each breaker in every token: 20 ms for a vocabulary of 100,000."""
    dll = model.library.dll
    texts = [breaker.encode() for breaker in breakers]
    array = (C.c_char_p * len(texts))(*texts)
    vocabulary = model.vocabulary.handle
    handle = dll.llama_sampler_init_dry(vocabulary, multiplier, base, allowed_length, last_n, array, len(texts))
    return _OwnedLink(dll, handle)
