"""What is asked of the scheduler, and how it answers."""

import time
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from leftoff.cache.report import ReuseReport
from leftoff.sampling import Sampling
from leftoff.types import Logits, Prompt


class Finish(Enum):
    """Why a reply ended."""

    END = "end"  # the model ended it
    STOPPED = "stopped"  # the sink had enough, such as at a stop string
    LENGTH = "length"  # as many tokens as asked for, or as fit
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass
class Timings:
    """Milliseconds and counts of one request, for people and for `timings` on the wire."""

    submitted: float = field(default_factory=time.perf_counter)
    started: float = 0.0
    first_token: float = 0.0
    finished: float = 0.0
    num_generated: int = 0

    @property
    def waited_ms(self) -> float:
        return 1000 * (self.started - self.submitted)

    @property
    def prompt_ms(self) -> float:
        return 1000 * ((self.first_token or self.finished) - self.started)

    @property
    def generation_ms(self) -> float:
        return 1000 * (self.finished - (self.first_token or self.finished))


class Sink(Protocol):
    """Receives a reply as it is made, on the engine's thread: it must be quick and must not block."""

    def started(self, report: ReuseReport) -> None: ...
    def progress(self, num_read: int) -> None:
        """So many tokens of the prompt have been read or reused."""
        ...

    def token(self, token: int, logits: Logits | None) -> bool:
        """False ends the reply. `logits` are there if the request wants them; they go with the call."""
        ...

    def finished(self, finish: Finish, timings: Timings, error: Exception | None) -> None: ...


class Constraint(Protocol):
    """Forbids tokens. The scheduler asks before it samples, and tells what was chosen.

    It forbids end tokens too, as long as a reply must not end; with a constraint, `ignore_end` has no meaning. What it
    raises, as an `EngineError`, ends its reply and no other.
    """

    @property
    def is_done(self) -> bool:
        """Nothing can follow: the reply ends, without asking the model for the token that says so."""
        ...

    def mask(self, logits: Logits) -> bool:
        """Sets the logits of forbidden tokens to minus infinity, in place. False if there are none."""
        ...

    def accept(self, token: int) -> None: ...


@dataclass(eq=False)
class Request:
    """One reply to be made."""

    prompt: Prompt
    sink: Sink
    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None  # None: as many as fit
    namespace: str = ""
    wants_logits: bool = False
    ignore_end: bool = False
    constraint: Constraint | None = None
    timings: Timings = field(default_factory=Timings)
