"""How the next token is chosen: the one table of sampling parameters.

Each field of `Sampling` states its default, its limits, llama-server's flags for it, and the GGUF key under which a
model's file may recommend a value. Everything else derives from that: the flags of `leftoff serve`, the request fields
of all dialects, the defaults from the model's file, and `/props`. A new sampler is a line for each of its parameters,
a line in `SAMPLER_LETTERS`, and its link in `engine/sampler_chain.py`.
"""

import dataclasses
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

logger = logging.getLogger(__name__)

# The links of the sampler chain in llama-server's order, by its letters and names.
SAMPLER_LETTERS = {
    "e": "penalties",
    "d": "dry",
    "s": "top_n_sigma",
    "k": "top_k",
    "y": "typ_p",
    "p": "top_p",
    "m": "min_p",
    "x": "xtc",
    "t": "temperature",
}
SAMPLERS = tuple(SAMPLER_LETTERS.values())
COLDEST = 1e-6  # a lower temperature is taken for zero: llama.cpp's floats would overflow
MAX_BIAS = 1e6

_BREAKERS = ("\n", ":", '"', "*")
_MAX_BREAKERS = 16  # each is searched in every token of the vocabulary
_MAX_BREAKER_BYTES = 40  # llama.cpp cuts longer ones
_MAX_TOKENS = 2**31 - 1
_MAX = 1e6


@dataclass(frozen=True)
class Parameter:
    """A number of `Sampling`, as the command line, the wire and model files know it."""

    name: str
    kind: type[int] | type[float]
    limits: tuple[float, float] | None
    flags: tuple[str, ...]
    gguf_key: str | None
    is_in_help: bool  # `--help` lists the common ones; the others work as well

    def value(self, text: str) -> float:
        """The number in a text. Raises `ValueError` with what is wrong."""
        try:
            value = self.kind(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a {'whole number' if self.kind is int else 'number'}") from None
        self.check(value)
        return value

    def check(self, value: float) -> None:
        if self.limits is None:
            return
        low, high = self.limits
        if not low <= value <= high:  # also false for NaN
            raise ValueError(f"{self.name} is {value}: must be between {low:.10g} and {high:.10g}")
        if self.kind is int and not isinstance(value, int):
            raise ValueError(f"{self.name} is {value}: must be a whole number")


def _number(
    default: float | None,
    limits: tuple[float, float] | None,
    flags: str = "",
    gguf: str | None = None,
    *,
    is_in_help: bool = False,
) -> Any:  # noqa: ANN401
    """A field of `Sampling` that is a number: its type is the default's."""
    kind = float if isinstance(default, float) else int
    facts = (kind, limits, tuple(flags.split()), f"general.sampling.{gguf}" if gguf else None, is_in_help)
    return dataclasses.field(default=default, metadata={"parameter": facts})


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. The defaults always choose the likeliest token.

    Names and meanings are llama-server's. A `*_last_n` of -1 means all tokens before.
    """

    seed: int | None = _number(None, None, "--seed -s", is_in_help=True)
    temperature: float = _number(0.0, (0, _MAX), "--temp --temperature", "temp", is_in_help=True)
    dynatemp_range: float = _number(0.0, (0, _MAX), "--dynatemp-range")
    dynatemp_exponent: float = _number(1.0, (0, _MAX), "--dynatemp-exp")
    top_k: int = _number(0, (-1, _MAX_TOKENS), "--top-k", "top_k", is_in_help=True)
    top_p: float = _number(1.0, (0, 1), "--top-p", "top_p", is_in_help=True)
    min_p: float = _number(0.0, (0, 1), "--min-p", "min_p", is_in_help=True)
    typical_p: float = _number(1.0, (0, 1), "--typical --typical-p")
    top_n_sigma: float = _number(-1.0, (-_MAX, _MAX), "--top-n-sigma --top-nsigma")
    xtc_probability: float = _number(0.0, (0, 1), "--xtc-probability", "xtc_probability")
    xtc_threshold: float = _number(0.1, (0, 1), "--xtc-threshold", "xtc_threshold")
    repeat_last_n: int = _number(64, (-1, _MAX_TOKENS), "--repeat-last-n", "penalty_last_n")
    repeat_penalty: float = _number(1.0, (1e-6, _MAX), "--repeat-penalty", "penalty_repeat", is_in_help=True)
    presence_penalty: float = _number(0.0, (-_MAX, _MAX), "--presence-penalty")
    frequency_penalty: float = _number(0.0, (-_MAX, _MAX), "--frequency-penalty")
    dry_multiplier: float = _number(0.0, (0, _MAX), "--dry-multiplier")
    dry_base: float = _number(1.75, (1, _MAX), "--dry-base")
    dry_allowed_length: int = _number(2, (0, _MAX_TOKENS), "--dry-allowed-length")
    dry_penalty_last_n: int = _number(64, (-1, _MAX_TOKENS), "--dry-penalty-last-n")
    dry_sequence_breakers: tuple[str, ...] = _BREAKERS
    mirostat: int = _number(0, (0, 2), "--mirostat", "mirostat")
    mirostat_tau: float = _number(5.0, (0, _MAX), "--mirostat-ent", "mirostat_tau")
    mirostat_eta: float = _number(0.1, (0, _MAX), "--mirostat-lr", "mirostat_eta")
    adaptive_target: float = _number(-1.0, (-_MAX, 1))  # mean probability of the chosen tokens; below 0: off
    adaptive_decay: float = _number(0.9, (0, 0.99))
    min_keep: int = _number(0, (0, _MAX_TOKENS))  # fewest tokens that top_p, min_p, typical_p and xtc leave
    logit_bias: tuple[tuple[int, float], ...] = ()
    samplers: tuple[str, ...] = SAMPLERS

    def __post_init__(self) -> None:
        for parameter in PARAMETERS:
            parameter.check(getattr(self, parameter.name))
        for token, bias in self.logit_bias:
            if not (-MAX_BIAS <= bias <= MAX_BIAS or bias == float("-inf")):
                raise ValueError(
                    f"logit_bias is {bias} for token {token}: must be between {-MAX_BIAS:g} and {MAX_BIAS:g},"
                    " or minus infinity to forbid it"
                )
        self._check_samplers()
        self._check_breakers()

    @property
    def is_greedy(self) -> bool:
        """Whether the likeliest token, after penalties, is chosen whatever else is set."""
        if self.mirostat:
            return self.temperature < COLDEST
        if self.samplers != SAMPLERS:
            return False
        may_drop_the_likeliest = self.typical_p < 1.0 or self.has_xtc
        is_cold = self.temperature + self.dynatemp_range < COLDEST
        return self.top_k == 1 or (is_cold and not may_drop_the_likeliest)

    @property
    def is_argmax(self) -> bool:
        """Whether the choice is simply the token with the highest logit."""
        return self.is_greedy and not self.has_penalties and not self.logit_bias

    @property
    def is_adaptive(self) -> bool:
        return self.adaptive_target >= 0.0

    @property
    def has_xtc(self) -> bool:
        return self.xtc_probability > 0.0 and self.xtc_threshold <= 0.5

    @property
    def has_repeat_penalties(self) -> bool:
        penalised = self.repeat_penalty != 1.0 or self.frequency_penalty != 0.0 or self.presence_penalty != 0.0
        return penalised and self.repeat_last_n != 0 and self._uses("penalties")

    @property
    def has_dry(self) -> bool:
        return self.dry_multiplier > 0.0 and self.dry_penalty_last_n != 0 and self._uses("dry")

    @property
    def has_penalties(self) -> bool:
        """Whether the choice depends on the tokens before."""
        return self.has_repeat_penalties or self.has_dry

    def _uses(self, sampler: str) -> bool:
        """Mirostat replaces all other samplers, as in llama-server."""
        return not self.mirostat and sampler in self.samplers

    def _check_samplers(self) -> None:
        for index, name in enumerate(self.samplers):
            if name not in SAMPLERS:
                raise ValueError(f"samplers has {name!r}: must be of {', '.join(SAMPLERS)}")
            if name in self.samplers[:index]:
                raise ValueError(f"samplers has {name!r} twice: name each once")

    def _check_breakers(self) -> None:
        breakers = self.dry_sequence_breakers
        if len(breakers) > _MAX_BREAKERS:
            raise ValueError(f"dry_sequence_breakers has {len(breakers)} texts: must be at most {_MAX_BREAKERS}")
        for breaker in breakers:
            if not 1 <= len(breaker.encode()) <= _MAX_BREAKER_BYTES or "\0" in breaker:
                raise ValueError(
                    f"dry_sequence_breakers has {breaker!r}: must be 1 to {_MAX_BREAKER_BYTES} bytes, none of them zero"
                )


PARAMETERS = tuple(
    Parameter(field.name, *field.metadata["parameter"])
    for field in dataclasses.fields(Sampling)
    if "parameter" in field.metadata
)

# llama-server's defaults, for requests that set nothing on a model that recommends nothing.
DEFAULT_SAMPLING = Sampling(temperature=0.8, top_k=40, top_p=0.95, min_p=0.05)


def recommended(metadata: Mapping[str, str]) -> Sampling:
    """The defaults as a model's file recommends them. Invalid values in it are ignored with a warning."""
    sampling = DEFAULT_SAMPLING
    for parameter in PARAMETERS:
        text = metadata.get(parameter.gguf_key or "")
        if text is None:
            continue
        try:
            value: Any = parameter.value(text)
            sampling = replace(sampling, **{parameter.name: value})
        except ValueError as error:
            logger.warning("the model's %s is left out: %s", parameter.gguf_key, error)
    return sampling
