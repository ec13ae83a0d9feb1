"""A job for the scheduler: the reply to generate, and the interfaces through which its tokens come back."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Protocol

from leftoff.adapters import NO_ADAPTERS
from leftoff.cache.report import ReuseReport
from leftoff.engine.errors import EngineError
from leftoff.sampling import Sampling
from leftoff.types import Logits, Prompt


class QueueFullError(EngineError):
    """More requests are waiting than the server is willing to hold."""


class Finish(Enum):
    """Why a reply ended."""

    END = "end"  # the model ended it
    STOPPED = "stopped"  # the sink had enough, such as at a stop string
    LENGTH = "length"  # as many tokens as asked for, or as fit
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass
class Timings:
    """When a job was submitted, started, and gave its first and last token, by `perf_counter`; and how many tokens.

    A time is 0 if it never came to that. `num_read` counts the tokens of the prompt that were reused or computed.
    """

    submitted: float = field(default_factory=time.perf_counter)
    started: float = 0.0
    first_token: float = 0.0
    finished: float = 0.0
    waited_for: str = ""  # the models that were busy or loading meanwhile
    num_read: int = 0
    num_generated: int = 0
    num_drafted: int = 0
    num_accepted: int = 0  # of those that were drafted
    drafted_from: dict[str, int] = field(default_factory=dict)  # those that were accepted, by where they come from

    def saw_draft(self, source: str, num_drafted: int, num_accepted: int) -> None:
        """A draft was verified."""
        self.num_drafted += num_drafted
        self.num_accepted += num_accepted
        self.drafted_from[source] = self.drafted_from.get(source, 0) + num_accepted

    @property
    def waited_ms(self) -> float:
        return 1000 * ((self.started or self.finished) - self.submitted)

    @property
    def prompt_ms(self) -> float:
        return 1000 * ((self.first_token or self.finished) - self.started) if self.started else 0.0

    @property
    def first_token_ms(self) -> float | None:
        """Milliseconds from the submission to the first token; None if there was no token."""
        return 1000 * (self.first_token - self.submitted) if self.first_token else None

    @property
    def generation_ms(self) -> float:
        return 1000 * (self.finished - (self.first_token or self.finished))


class Sink(Protocol):
    """Receives a reply while it is generated, on the engine's thread: it must be quick and must not block."""

    def started(self, report: ReuseReport) -> None:
        """The job has a slot, and its prompt resumes where the report says."""
        ...

    def progress(self, num_read: int) -> None:
        """`num_read` tokens of the prompt are reused or computed by now."""
        ...

    def token(self, token: int, logits: Logits | None) -> bool:
        """One token of the reply; False ends it. `logits` are passed if the job wants them, for this call only."""
        ...

    def finished(self, finish: Finish, timings: Timings, error: Exception | None) -> None:
        """The last call, whether or not there was any other."""
        ...


class Constraint(Protocol):
    """Masks tokens before sampling, and is told which one was chosen.

    It masks end tokens too, as long as the reply must not end: with a constraint, `ignore_end` has no meaning. If it
    raises, its own reply fails and no other.
    """

    @property
    def is_done(self) -> bool:
        """Nothing can follow: the reply ends without an end token from the model."""
        ...

    def mask(self, logits: Logits) -> bool:
        """Sets the logits of forbidden tokens to minus infinity, in place. False if there are none."""
        ...

    def accept(self, token: int) -> None: ...


# Takes a position of the prompt, and the logits for the token that stands there, for this call only.
Score = Callable[[int, Logits], None]


@dataclass(frozen=True, eq=False)
class Job:
    """One reply to be generated: its prompt, and how its tokens are chosen and ended."""

    prompt: Prompt
    sampling: Sampling = field(default_factory=Sampling)
    max_tokens: int | None = None  # None: as many as fit
    namespace: str = ""
    wants_logits: bool = False
    ignore_end: bool = False
    constraint: Constraint | None = None
    # Called on the engine's thread for every position of the prompt but the first, in order. The prompt is then read
    # from its beginning, whatever is known of it.
    score: Score | None = None

    def __post_init__(self) -> None:
        """Gives what is read with adapters from the first token on a namespace of its own, whoever makes the job."""
        prompt = self.prompt
        if self.max_tokens == 0:
            object.__setattr__(self, "prompt", replace(prompt, is_only_read=True))
        adapters = prompt.adapters if not prompt.adapted_from else NO_ADAPTERS
        object.__setattr__(self, "namespace", adapters.namespace(self.namespace))
