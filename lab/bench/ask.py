"""What a client asks and what it gets back, as the scripts see it: messages and words, no HTTP, no times."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from leftoff.chat.template.render import MessageDict, ToolDict

__all__ = ["Ask", "Call", "MessageDict", "Messages", "Reply", "Script", "ToolDict", "says"]

Messages = Sequence[MessageDict]


@dataclass(frozen=True)
class Ask:
    """One request. `counted` is the same without what changes for no reason, where that is not the messages."""

    messages: Messages
    max_tokens: int
    tools: Sequence[ToolDict] = ()
    thinks: bool = False
    after_restart: bool = False  # the server is stopped and started again before it
    counted: Messages | None = None


@dataclass(frozen=True)
class Call:
    """A tool that the model wants to be called."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True)
class Reply:
    """`is_refused`: the prompt does not fit in the server's window, and nothing was said."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    is_refused: bool = False

    @property
    def message(self) -> MessageDict:
        """As most clients send it back: without the reasoning."""
        calls = {"tool_calls": [_wire_call(call) for call in self.calls]} if self.calls else {}
        return {**says("assistant", self.content), **calls}


# Yields what is asked at the same time, and is sent the replies.
Script = Generator[list[Ask], list[Reply], None]


def says(role: str, content: str) -> MessageDict:
    return {"role": role, "content": content}


def _wire_call(call: Call) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
