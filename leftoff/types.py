"""The plain dataclasses that every layer shares. They hold data and check it; they do nothing."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int32]
Logits = npt.NDArray[np.float32]


def owner_of(namespace: str) -> str:
    """Namespaces are `owner/salt`. Those of one owner share nothing, but may be told of each other."""
    return namespace.partition("/")[0]


@dataclass(frozen=True)
class Message:
    """Where one message of a chat lies in the prompt: tokens [start, end)."""

    role: str
    start: int
    end: int


@dataclass(frozen=True, eq=False)
class Prompt:
    """What a model is asked to go on from. A raw prompt has no messages.

    [ header: system and tools )[ user )[ assistant ) ··· [ user )[ generation prompt )
    """

    tokens: Tokens
    messages: tuple[Message, ...] = ()
    breaks: tuple[int, ...] = ()  # blank lines of a long last message: what stands before may be asked about again

    @property
    def length(self) -> int:
        return int(self.tokens.size)

    @property
    def header_end(self) -> int | None:
        """The end of what all conversations of one client begin with."""
        starts = (message.start for message in self.messages if message.role not in ("system", "developer"))
        return next(starts, None)

    @property
    def last_user_start(self) -> int | None:
        starts = [message.start for message in self.messages if message.role == "user"]
        return starts[-1] if starts else None

    @property
    def messages_end(self) -> int | None:
        """Where the last message ends and the generation prompt begins."""
        return self.messages[-1].end if self.messages else None


# llama-server's names of what a choice goes through, in its order.
SAMPLERS = ("penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature")
BREAKERS = ("\n", ":", '"', "*")
COLDEST = 1e-6  # colder is as good as zero, and llama.cpp's floats overflow on the way there

_MOST = 2**31 - 1
_MAX_BREAKERS = 16  # each is looked for in every token of the vocabulary
_MAX_BREAKER_BYTES = 40  # llama.cpp cuts longer ones
MOST_BIAS = 1e6
_LIMITS: dict[str, tuple[float, float]] = {
    "temperature": (0.0, 1e6),
    "dynatemp_range": (0.0, 1e6),
    "dynatemp_exponent": (0.0, 1e6),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "typical_p": (0.0, 1.0),
    "top_n_sigma": (-1e6, 1e6),
    "xtc_probability": (0.0, 1.0),
    "xtc_threshold": (0.0, 1.0),
    "repeat_penalty": (1e-6, 1e6),
    "frequency_penalty": (-1e6, 1e6),
    "presence_penalty": (-1e6, 1e6),
    "dry_multiplier": (0.0, 1e6),
    "dry_base": (1.0, 1e6),
    "mirostat_tau": (0.0, 1e6),
    "mirostat_eta": (0.0, 1e6),
    "adaptive_target": (-1e6, 1.0),
    "adaptive_decay": (0.0, 0.99),
}
_WHOLE_LIMITS = {
    "top_k": (-1, _MOST),
    "repeat_last_n": (-1, _MOST),
    "dry_allowed_length": (0, _MOST),
    "dry_penalty_last_n": (-1, _MOST),
    "mirostat": (0, 2),
    "min_keep": (0, _MOST),
}


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. The defaults choose the likeliest token, always.

    Names and meanings are llama-server's. Of the tokens before, -1 takes all.
    """

    temperature: float = 0.0
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: tuple[str, ...] = BREAKERS
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    adaptive_target: float = -1.0  # the chance that chosen tokens shall have on average; below 0: off
    adaptive_decay: float = 0.9
    min_keep: int = 0  # tokens that top_p, min_p, typical_p and xtc leave at least
    logit_bias: tuple[tuple[int, float], ...] = ()
    samplers: tuple[str, ...] = SAMPLERS
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, (low, high) in (_LIMITS | _WHOLE_LIMITS).items():
            value = getattr(self, name)
            if not low <= value <= high:  # also false for NaN
                raise ValueError(f"{name} is {value}: must be between {low:.10g} and {high:.10g}")
            if name in _WHOLE_LIMITS and not isinstance(value, int):
                raise ValueError(f"{name} is {value}: must be a whole number")
        for token, bias in self.logit_bias:
            if not (-MOST_BIAS <= bias <= MOST_BIAS or bias == float("-inf")):
                raise ValueError(
                    f"logit_bias is {bias} for token {token}: must be between {-MOST_BIAS:g} and {MOST_BIAS:g},"
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
    def takes_the_likeliest(self) -> bool:
        """Whether it is simply the token with the highest logit."""
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
        """Mirostat chooses by itself: in llama-server it takes the place of all others."""
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
