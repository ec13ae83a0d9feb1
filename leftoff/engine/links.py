"""The links of a sampler chain: what changes logits, what narrows the choice, and last the one that chooses.

llama.cpp aborts the process where nothing was chosen, so every chain ends in exactly one link that chooses.
"""

from collections.abc import Iterator

from leftoff.engine.binding import abi
from leftoff.engine.dry import dry_link
from leftoff.engine.errors import InputError
from leftoff.engine.model import Model
from leftoff.types import COLDEST, Sampling

MOST_REMEMBERED = 1 << 20  # llama.cpp allocates room for all of them at once, and dies where it cannot

_KEEP_ONE = 1
_MIROSTAT_TOKENS = 100  # that the first mirostat estimates from: llama-server's number
_NO_CHANCE = 1e-30  # of the likeliest token's: drawn in no lifetime


class Links:
    """Makes them one by one; who takes a link owns it. What is off has no link."""

    def __init__(self, model: Model, sampling: Sampling, seed: int) -> None:
        self._model = model
        self._dll = model.library.dll
        self._sampling = sampling
        self._seed = seed
        self._min_keep = max(_KEEP_ONE, sampling.min_keep)

    def __iter__(self) -> Iterator[int]:
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
                _remembered(sampling.repeat_last_n),
                sampling.repeat_penalty,
                sampling.frequency_penalty,
                sampling.presence_penalty,
            )

    def _dry(self) -> Iterator[int]:
        sampling = self._sampling
        if sampling.has_dry:
            yield dry_link(
                self._model,
                sampling.dry_multiplier,
                sampling.dry_base,
                sampling.dry_allowed_length,
                _remembered(sampling.dry_penalty_last_n),
                sampling.dry_sequence_breakers,
            )

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
        """The temperature lies between two, nearer to the higher one where the model is less sure."""
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
        """For links that take the logarithm of every chance: a forbidden token's would make all of them NaN."""
        link: int = self._dll.llama_sampler_init_min_p(_NO_CHANCE, _KEEP_ONE)
        return link


def _remembered(last_n: int) -> int:
    return MOST_REMEMBERED if last_n < 0 else min(last_n, MOST_REMEMBERED)
