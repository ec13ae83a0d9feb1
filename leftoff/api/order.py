"""One reply, as asked for in any dialect."""

from dataclasses import dataclass

from leftoff.core import Prompt, Sampling
from leftoff.scheduler.request import Constraint


@dataclass(frozen=True)
class Order:
    """What the service needs to know to make a reply."""

    prompt: Prompt
    sampling: Sampling
    max_tokens: int | None = None
    stops: tuple[str, ...] = ()
    namespace: str = ""
    num_logprobs: int | None = None  # None: no logprobs; 0: of the chosen token only
    ignore_end: bool = False
    show_control: bool = False
    constraint: Constraint | None = None
    notes: tuple[str, ...] = ()
