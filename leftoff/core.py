"""The plain dataclasses that every layer shares. They hold data and check it; they do nothing."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Tokens = npt.NDArray[np.int32]
Logits = npt.NDArray[np.float32]


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


_LIMITS = {
    "temperature": (0.0, 1e6),
    "top_p": (0.0, 1.0),
    "min_p": (0.0, 1.0),
    "repeat_penalty": (1e-6, 1e6),
    "frequency_penalty": (-1e6, 1e6),
    "presence_penalty": (-1e6, 1e6),
}


@dataclass(frozen=True)
class Sampling:
    """How the next token is chosen. The defaults choose the likeliest token, always."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repeat_penalty: float = 1.0
    repeat_last_n: int = 64
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None

    def __post_init__(self) -> None:
        for name, (low, high) in _LIMITS.items():
            value = getattr(self, name)
            if not low <= value <= high:  # also false for NaN
                raise ValueError(f"{name} is {value}: must be between {low:g} and {high:g}")

    @property
    def is_greedy(self) -> bool:
        return self.temperature <= 0.0 or self.top_k == 1

    @property
    def has_penalties(self) -> bool:
        penalised = self.repeat_penalty != 1.0 or self.frequency_penalty != 0.0 or self.presence_penalty != 0.0
        return penalised and self.repeat_last_n != 0
