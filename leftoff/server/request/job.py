"""One reply, as asked for in any dialect."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leftoff.chat.formats.output import Output
from leftoff.chat.template.render import MessageDict, ToolDict
from leftoff.sampling import Sampling
from leftoff.scheduler.request import Constraint
from leftoff.types import Prompt


@dataclass(frozen=True)
class Conversation:
    """What is replied to, as the client told it, and the key by which the reply is remembered."""

    key: bytes
    messages: Sequence[MessageDict]
    tools: Sequence[ToolDict] | None = None
    options: Mapping[str, Any] | None = None


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
    conversation: Conversation | None = None
