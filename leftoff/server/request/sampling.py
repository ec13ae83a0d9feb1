"""How the next token is chosen, on the wire: llama-server's fields, which all dialects take, and what they mean here.

Where a request is silent, the model's own recommendation holds, if its file has one, and else llama-server's defaults:
temperature 0.8, top_k 40, top_p 0.95, min_p 0.05, all else off. `null` is silence too.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Annotated, Any, TypeGuard

from msgspec import Meta, Struct

from leftoff.engine.vocabulary import Vocabulary
from leftoff.server.http.errors import ApiError, bad_field
from leftoff.types import SAMPLERS, Sampling

logger = logging.getLogger(__name__)

DEFAULT_SAMPLING = Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)

# Where a GGUF file says how its model wants to be sampled.
_RECOMMENDED: dict[str, tuple[str, type[int] | type[float]]] = {
    "general.sampling.temp": ("temperature", float),
    "general.sampling.top_k": ("top_k", int),
    "general.sampling.top_p": ("top_p", float),
    "general.sampling.min_p": ("min_p", float),
    "general.sampling.xtc_probability": ("xtc_probability", float),
    "general.sampling.xtc_threshold": ("xtc_threshold", float),
    "general.sampling.penalty_last_n": ("repeat_last_n", int),
    "general.sampling.penalty_repeat": ("repeat_penalty", float),
    "general.sampling.mirostat": ("mirostat", int),
    "general.sampling.mirostat_tau": ("mirostat_tau", float),
    "general.sampling.mirostat_eta": ("mirostat_eta", float),
}

Share = Annotated[float, Meta(ge=0, le=1)]
Amount = Annotated[float, Meta(ge=0, le=1e6)]
Signed = Annotated[float, Meta(ge=-1e6, le=1e6)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Limit = Annotated[int, Meta(ge=-1, le=2**31 - 1)]  # -1: as many as there are

SamplerName = Annotated[str, Meta(max_length=64)]

# Some forbid all tokens of a script by their ids. Each text is tokenised while others wait.
MOST_BIASES = 1 << 16
_MOST_BIASED_TEXTS = 1024
_LONGEST_BIASED_TEXT = 128

_LETTERS = dict(zip("edskypmxt", SAMPLERS, strict=True))
_SPELLINGS = {name.replace("_", ""): name for name in SAMPLERS} | {
    "temp": "temperature",
    "typ": "typ_p",
    "typicalp": "typ_p",
    "nucleus": "top_p",
}
_MOST_DIGITS = 20
_ANY_SEED = -1
_NO_SAMPLER = "adaptivep"  # clients name it among the others; what turns it on is its target


class SamplingFields(Struct, kw_only=True):
    temperature: Amount | None = None
    dynatemp_range: Amount | None = None
    dynatemp_exponent: Amount | None = None
    top_k: Limit | None = None
    top_p: Share | None = None
    min_p: Share | None = None
    typical_p: Share | None = None
    top_n_sigma: Signed | None = None
    xtc_probability: Share | None = None
    xtc_threshold: Share | None = None
    repeat_penalty: Annotated[float, Meta(ge=1e-6, le=1e6)] | None = None
    repeat_last_n: Limit | None = None
    frequency_penalty: Signed | None = None
    presence_penalty: Signed | None = None
    dry_multiplier: Amount | None = None
    dry_base: Amount | None = None  # below 1: the default, as in llama-server
    dry_allowed_length: Count | None = None
    dry_penalty_last_n: Limit | None = None
    dry_sequence_breakers: Annotated[list[Annotated[str, Meta(max_length=128)]], Meta(max_length=32)] | None = None
    mirostat: Annotated[int, Meta(ge=0, le=2)] | None = None
    mirostat_tau: Amount | None = None
    mirostat_eta: Amount | None = None
    adaptive_target: Annotated[float, Meta(ge=-1e6, le=1)] | None = None  # below 0: off
    adaptive_decay: Annotated[float, Meta(ge=0, le=0.99)] | None = None
    min_keep: Count | None = None
    logit_bias: (
        Annotated[dict[str, Signed | bool], Meta(max_length=MOST_BIASES)]
        | Annotated[list[tuple[int | str, Signed | bool]], Meta(max_length=MOST_BIASES)]
        | None
    ) = None
    samplers: Annotated[list[SamplerName], Meta(max_length=64)] | SamplerName | None = None  # or letters
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None  # -1: another one each time

    def sampling(self, vocabulary: Vocabulary, context_tokens: int, defaults: Sampling = DEFAULT_SAMPLING) -> Sampling:
        given = {field.name: getattr(self, field.name) for field in fields(Sampling)}
        given["logit_bias"] = tuple(self._biases(vocabulary))
        for name in ("repeat_last_n", "dry_penalty_last_n"):
            given[name] = context_tokens if given[name] == -1 else given[name]
        if self.dry_base is not None and self.dry_base < 1:
            given["dry_base"] = None
        if self.dry_sequence_breakers is not None:
            given["dry_sequence_breakers"] = tuple(self.dry_sequence_breakers)
        if self.samplers is not None:
            given["samplers"] = tuple(_names_of(self.samplers))
        chosen = _checked(defaults, {name: value for name, value in given.items() if value is not None})
        return replace(chosen, seed=None) if self.seed == _ANY_SEED else chosen

    def _biases(self, vocabulary: Vocabulary) -> Iterator[tuple[int, float]]:
        """A token may be given as its id, as its id in letters, or as text, which stands for all of its tokens."""
        pairs = [*self.logit_bias.items()] if isinstance(self.logit_bias, dict) else self.logit_bias or []
        _check_texts([key for key, _ in pairs if _is_text(key)])
        for key, bias in pairs:
            value = float(bias) if not isinstance(bias, bool) else _banned(key, bias)
            for token in _tokens_of(key, vocabulary):
                yield token, value


def recommended(metadata: Mapping[str, str]) -> Sampling:
    """The defaults as a model's file wants them. What makes no sense in it is left out, and said."""
    sampling = DEFAULT_SAMPLING
    for key in _RECOMMENDED.keys() & metadata.keys():
        name, kind = _RECOMMENDED[key]
        try:
            value: Any = kind(metadata[key])
            sampling = replace(sampling, **{name: value})
        except ValueError as error:
            logger.warning("the model's %s is left out: %s", key, error)
    return sampling


def _checked(defaults: Sampling, given: dict[str, Any]) -> Sampling:
    try:
        return replace(defaults, **given)
    except ValueError as error:  # which begins with the name of the field
        raise ApiError(400, str(error), param=str(error).partition(" ")[0]) from error


def _names_of(samplers: list[str] | str) -> Iterator[str]:
    if isinstance(samplers, str):
        yield from (_LETTERS.get(letter, letter) for letter in samplers)
        return
    for name in samplers:
        plain = name.lower().replace("-", "").replace("_", "")
        if plain != _NO_SAMPLER:
            yield _SPELLINGS.get(plain, name)


def _banned(key: int | str, bias: bool) -> float:
    if bias:
        raise bad_field("logit_bias", f"{key!r} is true: give a number, or false to forbid the token")
    return float("-inf")


def _is_text(key: int | str) -> TypeGuard[str]:
    return isinstance(key, str) and not key.removeprefix("-").isdecimal()


def _check_texts(texts: Sequence[int | str]) -> None:
    if len(texts) > _MOST_BIASED_TEXTS:
        raise bad_field("logit_bias", f"has {len(texts)} texts: must be at most {_MOST_BIASED_TEXTS}, or token ids")
    longest = max((len(str(text)) for text in texts), default=0)
    if longest > _LONGEST_BIASED_TEXT:
        raise bad_field(
            "logit_bias", f"has a text of {longest} characters: must be at most {_LONGEST_BIASED_TEXT}, or token ids"
        )


def _tokens_of(key: int | str, vocabulary: Vocabulary) -> list[int]:
    if _is_text(key):
        return [int(token) for token in vocabulary.tokenize(key)]
    is_number = isinstance(key, int) or len(key) <= _MOST_DIGITS
    if not is_number or not 0 <= int(key) < vocabulary.size:
        raise bad_field("logit_bias", f"token {key} is not in the vocabulary of {vocabulary.size} tokens")
    return [int(key)]
