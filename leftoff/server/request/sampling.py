"""The request fields for sampling, which all dialects take, and how they become a `Sampling`.

The names are llama-server's. A field that is missing or `null` has the server's default.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, TypeGuard

from msgspec import Meta, Struct, defstruct

from leftoff.engine.vocabulary import Vocabulary
from leftoff.sampling import DEFAULT_SAMPLING, PARAMETERS, SAMPLER_LETTERS, SAMPLERS, Parameter, Sampling
from leftoff.server.http.errors import ApiError, bad_field

Limit = Annotated[int, Meta(ge=-1, le=2**31 - 1)]  # -1: no limit

_Bias = Annotated[float, Meta(ge=-1e6, le=1e6)] | bool
_SamplerName = Annotated[str, Meta(max_length=64)]

# Clients forbid all tokens of a script by their ids. Texts are tokenised while other requests wait.
_MAX_BIASES = 1 << 16
_MAX_BIASED_TEXTS = 1024
_MAX_BIASED_CHARACTERS = 128

_SPELLINGS = {name.replace("_", ""): name for name in SAMPLERS} | {
    "temp": "temperature",
    "typ": "typ_p",
    "typicalp": "typ_p",
    "nucleus": "top_p",
}
_ADAPTIVE_P = "adaptivep"  # clients list it among the samplers; here `adaptive_target` turns it on
_MAX_DIGITS = 20
_ANY_SEED = -1


def _wire_type(parameter: Parameter) -> Any:  # noqa: ANN401
    low, high = parameter.limits or (None, None)
    return Annotated[parameter.kind, Meta(ge=low, le=high)] | None


if TYPE_CHECKING:
    _Numbers = Struct  # its fields are read by their names in the table alone
else:
    _Numbers = defstruct("_Numbers", [(number.name, _wire_type(number), None) for number in PARAMETERS], kw_only=True)


class SamplingFields(_Numbers, kw_only=True):
    """The numbers of `leftoff.sampling`, each optional, and here the fields that differ from it on the wire."""

    dry_base: Annotated[float, Meta(ge=0, le=1e6)] | None = None  # below 1: the default, as in llama-server
    dry_sequence_breakers: Annotated[list[Annotated[str, Meta(max_length=128)]], Meta(max_length=32)] | None = None
    logit_bias: (
        Annotated[dict[str, _Bias], Meta(max_length=_MAX_BIASES)]
        | Annotated[list[tuple[int | str, _Bias]], Meta(max_length=_MAX_BIASES)]
        | None
    ) = None
    samplers: Annotated[list[_SamplerName], Meta(max_length=64)] | _SamplerName | None = None  # names, or letters
    seed: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None  # -1: another one each time

    def number(self, name: str) -> float | None:
        """One of the table's numbers as the request gives it."""
        value: float | None = getattr(self, name)
        return value

    def sampling(self, vocabulary: Vocabulary, context_tokens: int, defaults: Sampling = DEFAULT_SAMPLING) -> Sampling:
        given: dict[str, Any] = {parameter.name: self.number(parameter.name) for parameter in PARAMETERS}
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
        """A key is a token id, as a number or in digits, or a text, whose tokens all get the bias."""
        pairs = [*self.logit_bias.items()] if isinstance(self.logit_bias, dict) else self.logit_bias or []
        _check_texts([key for key, _ in pairs if _is_text(key)])
        for key, bias in pairs:
            value = float(bias) if not isinstance(bias, bool) else _banned(key, bias)
            for token in _tokens_of(key, vocabulary):
                yield token, value


def _checked(defaults: Sampling, given: dict[str, Any]) -> Sampling:
    try:
        return replace(defaults, **given)
    except ValueError as error:  # which begins with the name of the field
        raise ApiError(400, str(error), param=str(error).partition(" ")[0]) from error


def _names_of(samplers: list[str] | str) -> Iterator[str]:
    if isinstance(samplers, str):
        yield from (SAMPLER_LETTERS.get(letter, letter) for letter in samplers)
        return
    for name in samplers:
        plain = name.lower().replace("-", "").replace("_", "")
        if plain != _ADAPTIVE_P:
            yield _SPELLINGS.get(plain, name)


def _banned(key: int | str, bias: bool) -> float:
    if bias:
        raise bad_field("logit_bias", f"{key!r} is true: give a number, or false to forbid the token")
    return float("-inf")


def _is_text(key: int | str) -> TypeGuard[str]:
    return isinstance(key, str) and not key.removeprefix("-").isdecimal()


def _check_texts(texts: Sequence[int | str]) -> None:
    if len(texts) > _MAX_BIASED_TEXTS:
        raise bad_field("logit_bias", f"has {len(texts)} texts: must be at most {_MAX_BIASED_TEXTS}, or token ids")
    longest = max((len(str(text)) for text in texts), default=0)
    if longest > _MAX_BIASED_CHARACTERS:
        raise bad_field(
            "logit_bias", f"has a text of {longest} characters: must be at most {_MAX_BIASED_CHARACTERS}, or token ids"
        )


def _tokens_of(key: int | str, vocabulary: Vocabulary) -> list[int]:
    if _is_text(key):
        return [int(token) for token in vocabulary.tokenize(key)]
    is_number = isinstance(key, int) or len(key) <= _MAX_DIGITS
    if not is_number or not 0 <= int(key) < vocabulary.size:
        raise bad_field("logit_bias", f"token {key} is not in the vocabulary of {vocabulary.size} tokens")
    return [int(key)]
