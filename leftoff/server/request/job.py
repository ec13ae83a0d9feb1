"""One reply, as asked for in any dialect."""

from dataclasses import dataclass

from leftoff.chat.chat import ChatPrompt
from leftoff.chat.formats.parser import Output
from leftoff.sampling import Sampling
from leftoff.scheduler.request import Constraint
from leftoff.types import Prompt


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
    output: Output | None = None  # None: the text as it is
    constraint: Constraint | None = None
    notes: tuple[str, ...] = ()
    chat: ChatPrompt | None = None  # if the reply is to be remembered, and the next prompt read ahead
