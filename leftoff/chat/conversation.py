"""A conversation, as one value from the wire to the template, and notes on what was done to it on the way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from leftoff.chat.template.render import MessageDict, ToolDict

NoteKind = Literal["dropped", "moved", "pinned", "cut", "template", "reasoning dropped", "re-rendered"]

DEFERRED = "defer_loading"  # in a tool: it can be called, but the template does not show it; a message may

# Where a template would let the model think first, it has begun to speak already.
_SPEAKS = {"enable_thinking": False}
_WHOLE = ("tool_calls", "reasoning_content", "reasoning")


@dataclass(frozen=True)
class Conversation:
    """A chat to reply to. `tools` are those shown to the model; `options` are variables for the template.

    `namespace` is the tenant's, as for the cache: nothing remembered for one namespace is used for another.
    """

    messages: Sequence[MessageDict]
    tools: Sequence[ToolDict] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    namespace: str = ""
    add_generation_prompt: bool = True

    @property
    def prefill(self) -> str:
        """The text of a last message of the assistant's: it is the beginning of the reply, and the model goes on there.

        Empty if the reply is still to begin. A message with tool calls or reasoning is a whole reply, and so is one
        that no other message precedes.
        """
        if len(self.messages) < 2:
            return ""
        last = self.messages[-1]
        return _text(last) if last.get("role") == "assistant" and not any(map(last.get, _WHOLE)) else ""

    def without_prefill(self) -> "Conversation":
        """The messages before the reply that was begun."""
        return replace(self, messages=self.messages[:-1], options=_SPEAKS | dict(self.options))


@dataclass(frozen=True)
class Note:
    """Something that was done to a conversation before it became a prompt, in one line for the reuse report."""

    kind: NoteKind
    text: str

    def __str__(self) -> str:
        return self.text


def _text(message: MessageDict) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content)
