"""How a reply is made, on the wire: the fields that all dialects share, and what they mean here.

Where a request is silent, llama-server's defaults hold: temperature 0.8, top_k 40, top_p 0.95, min_p 0.05, no
penalties. `null` is silence too.
"""

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta, Struct

from leftoff.api.errors import bad_field, not_yet
from leftoff.core import Sampling
from leftoff.engine.vocabulary import Vocabulary

DEFAULT_SAMPLING = Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)

Share = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-1e6, le=1e6)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Limit = Annotated[int, Meta(ge=-1, le=2**31 - 1)]  # -1: as many as there are
Bias = Annotated[float, Meta(ge=-1e6, le=1e6)] | bool

# Samplers that are not there yet. These values turn them off, and clients that send everything send them.
_OFF = {
    "typical_p": 1.0,
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "dry_multiplier": 0.0,
    "dynatemp_range": 0.0,
    "mirostat": 0,
}


class GenerationFields(Struct, kw_only=True):
    temperature: Annotated[float, Meta(ge=0, le=1e6)] | None = None
    top_k: Limit | None = None
    top_p: Share | None = None
    min_p: Share | None = None
    repeat_penalty: Annotated[float, Meta(ge=1e-6, le=1e6)] | None = None
    repeat_last_n: Limit | None = None
    frequency_penalty: Penalty | None = None
    presence_penalty: Penalty | None = None
    logit_bias: dict[str, Bias] | list[tuple[int | str, Bias]] | None = None
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None  # -1: another one each time

    stop: str | list[str] | None = None
    max_tokens: Limit | None = None
    max_completion_tokens: Limit | None = None
    n_predict: Limit | None = None
    ignore_eos: bool | None = None

    stream: bool | None = None
    return_progress: bool | None = None
    timings_per_token: bool | None = None
    cache_prompt: bool | None = None  # the cache never changes what is said: there is nothing to turn off
    cache_salt: str | None = None
    user: str | None = None

    typical_p: float | None = None
    top_n_sigma: float | None = None
    xtc_probability: float | None = None
    dry_multiplier: float | None = None
    dynatemp_range: float | None = None
    mirostat: int | None = None
    grammar: str | None = None
    json_schema: dict[str, Any] | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())

    @property
    def length_limit(self) -> int | None:
        limits = (self.max_completion_tokens, self.max_tokens, self.n_predict)
        return next((limit for limit in limits if limit is not None), None)

    def refuse_what_is_not_there(self) -> None:
        """Better a clear no than a reply that ignores what was asked for."""
        for name, off in _OFF.items():
            value = getattr(self, name)
            if value is not None and value != off:
                raise not_yet(name, value, f"leave it out, or at {off}")
        if self.grammar:
            raise not_yet("grammar", self.grammar[:40], "leave it out")
        if self.json_schema is not None:
            raise not_yet("json_schema", "a schema", "leave it out")

    def sampling(self, vocabulary: Vocabulary, context_tokens: int) -> Sampling:
        default = DEFAULT_SAMPLING
        last_n = _or(self.repeat_last_n, default.repeat_last_n)
        return Sampling(
            temperature=_or(self.temperature, default.temperature),
            top_k=max(0, _or(self.top_k, default.top_k)),
            top_p=_or(self.top_p, default.top_p),
            min_p=_or(self.min_p, default.min_p),
            repeat_penalty=_or(self.repeat_penalty, default.repeat_penalty),
            repeat_last_n=context_tokens if last_n < 0 else last_n,
            frequency_penalty=_or(self.frequency_penalty, default.frequency_penalty),
            presence_penalty=_or(self.presence_penalty, default.presence_penalty),
            logit_bias=tuple(self._biases(vocabulary)),
            seed=None if self.seed == -1 else self.seed,
        )

    def _biases(self, vocabulary: Vocabulary) -> Iterator[tuple[int, float]]:
        """A token may be given as its id, as its id in letters, or as text, which stands for all of its tokens."""
        pairs = self.logit_bias.items() if isinstance(self.logit_bias, dict) else self.logit_bias or ()
        for key, bias in pairs:
            value = float(bias) if not isinstance(bias, bool) else _banned(key, bias)
            for token in _tokens_of(key, vocabulary):
                yield token, value


def _or(value: Any, default: Any) -> Any:  # noqa: ANN401
    return default if value is None else value


def _banned(key: int | str, bias: bool) -> float:
    if bias:
        raise bad_field("logit_bias", f"{key!r} is true: give a number, or false to forbid the token")
    return float("-inf")


def _tokens_of(key: int | str, vocabulary: Vocabulary) -> list[int]:
    if isinstance(key, str) and not key.removeprefix("-").isdecimal():
        return [int(token) for token in vocabulary.tokenize(key)]
    token = int(key)
    if not 0 <= token < vocabulary.size:
        raise bad_field("logit_bias", f"token {token} is not in the vocabulary of {vocabulary.size} tokens")
    return [token]
