"""A last message of the assistant's is the beginning of its reply: the model goes on from there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leftoff.chat.template.render import MessageDict

# Where a template would let the model think first, it has begun to speak already.
_SPEAKS = {"enable_thinking": False}
_WHOLE = ("tool_calls", "reasoning_content", "reasoning")


@dataclass(frozen=True)
class BegunReply:
    """What stands before the reply, and its first words: none, if it is still to begin."""

    messages: Sequence[MessageDict]
    words: str = ""

    @classmethod
    def of(cls, messages: Sequence[MessageDict]) -> "BegunReply":
        """One with calls of tools or with its reasoning is whole, and so is one that nothing stands before."""
        *before, last = messages
        is_begun = before and last.get("role") == "assistant" and not any(map(last.get, _WHOLE))
        words = _words(last) if is_begun else ""
        return cls(before, words) if words else cls(messages)

    def options(self, options: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        return _SPEAKS | dict(options or {}) if self.words else options


def _words(message: MessageDict) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content)
