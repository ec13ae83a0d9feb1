"""A conversation, as one value from the wire to the template, and notes on what was done to it on the way."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from leftoff.chat.template.render import MessageDict, ToolDict
from leftoff.errors import reason_of
from leftoff.picture import Picture, PictureError, Pictures

NoteKind = Literal["dropped", "moved", "pinned", "cut", "template", "reasoning dropped", "re-rendered", "rules stopped"]

DEFERRED = "defer_loading"  # in a tool: it can be called, but the template does not show it; a message may

# Where a template would let the model think first, it has begun to speak already.
_SPEAKS = {"enable_thinking": False}
_WHOLE = ("tool_calls", "reasoning_content", "reasoning")


@dataclass(frozen=True)
class Conversation:
    """A chat to reply to. `tools` are those shown to the model; `options` are variables for the template.

    `namespace` is the tenant's, as for the cache: nothing remembered for one namespace is used for another.
    Messages are text; where a picture stands in one, its marker does. `pictures` has them by their markers.
    """

    messages: Sequence[MessageDict]
    tools: Sequence[ToolDict] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    namespace: str = ""
    add_generation_prompt: bool = True
    pictures: Mapping[str, Picture] = field(default_factory=dict)

    @classmethod
    def with_files(cls, messages: Sequence[MessageDict], pictures: Pictures | None) -> "Conversation":
        """A conversation whose messages name pictures by their paths, as `{"type": "image", "path": …}`.

        `pictures` takes them; it is None for a model that sees none, which raises `PictureError` if there is one.
        """
        taken: dict[str, Picture] = {}
        plain = [_with_markers(message, pictures, taken) for message in messages]
        return cls(plain, pictures=taken)

    @property
    def prefill(self) -> str:
        """The text of a last message of the assistant's: it is the beginning of the reply, and the model goes on there.

        Empty if the reply is still to begin. A message with tool calls or reasoning is a whole reply, and so is one
        that no other message precedes.
        """
        if len(self.messages) < 2:
            return ""
        last = self.messages[-1]
        return text_of(last) if last.get("role") == "assistant" and not any(map(last.get, _WHOLE)) else ""

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


def _with_markers(message: MessageDict, pictures: Pictures | None, taken: dict[str, Picture]) -> MessageDict:
    content = message.get("content")
    if isinstance(content, str | None) or not any("path" in part for part in content):
        return message
    return {**message, "content": "".join(_shown(part, pictures, taken) for part in content)}


def _shown(part: Mapping[str, Any], pictures: Pictures | None, taken: dict[str, Picture]) -> str:
    if "path" not in part:
        return part.get("text") or ""
    path = Path(part["path"]).expanduser()
    if pictures is None:
        raise PictureError(f"{path} cannot be shown: this model reads text only, since it has no projector")
    try:
        picture = pictures.take(path.read_bytes(), str(path))
    except OSError as error:
        raise PictureError(f"{path} cannot be read: {reason_of(error)}") from error
    taken[picture.marker] = picture
    return picture.marker


def text_of(message: MessageDict) -> str:
    """The words of a message: of several parts, those of all."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(str(part.get("text") or "") for part in content if isinstance(part, Mapping))
    return content if isinstance(content, str) else ""
