"""The history of a chat in the terminal: questions and replies, which can be edited, saved and loaded."""

import json
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from msgspec import Struct

from leftoff.chat.template.render import MessageDict


@dataclass(frozen=True)
class Question:
    """The text of a user's question, and the paths of the pictures that are sent with it."""

    text: str
    images: tuple[str, ...] = ()

    @property
    def message(self) -> MessageDict:
        if not self.images:
            return _message("user", self.text)
        pictures = [{"type": "image", "path": path} for path in self.images]
        return {"role": "user", "content": [*pictures, {"type": "text", "text": self.text}]}


@dataclass
class ChatHistory:
    """Pairs of a question and its reply, after an optional system prompt. It can be edited."""

    system: str = ""
    turns: list[tuple[Question, str]] = field(default_factory=list)

    def asking(self, question: Question) -> list[MessageDict]:
        """The messages of a request."""
        messages = [_message("system", self.system)] if self.system else []
        for asked, reply in self.turns:
            messages += [asked.message, _message("assistant", reply)]
        return [*messages, question.message]

    def save(self, path: Path) -> None:
        *messages, _ = self.asking(Question(""))
        path.write_text(json.dumps({"messages": messages}, ensure_ascii=False, indent=1), encoding="utf-8")

    def load(self, path: Path) -> None:
        """Takes over what `save` wrote. For another file it raises `ValueError`, and changes nothing."""
        saved = msgspec.json.decode(path.read_bytes(), type=_Saved).messages
        system = saved[0].content if saved and saved[0].role == "system" else ""
        said = saved[1:] if system else saved
        if [message.role for message in said] != ["user", "assistant"] * (len(said) // 2):
            raise ValueError("questions and replies do not take turns in it")
        pairs = zip(said[::2], said[1::2], strict=True)
        self.turns = [(_question(asked.content), _question(reply.content).text) for asked, reply in pairs]
        self.system = _question(system).text

    def add(self, question: Question, reply: str) -> None:
        self.turns.append((question, reply))

    def undo(self) -> tuple[Question, str] | None:
        """Removes the last turn and returns it; None if there is no turn."""
        return self.turns.pop() if self.turns else None

    def reset(self) -> None:
        self.turns.clear()


def _message(role: str, content: str) -> MessageDict:
    return {"role": role, "content": content}


class _Part(Struct):
    type: str
    text: str = ""
    path: str = ""


class _SavedMessage(Struct):
    role: str
    content: str | list[_Part]


class _Saved(Struct):
    messages: list[_SavedMessage]


def _question(content: str | list[_Part]) -> Question:
    if isinstance(content, str):
        return Question(content)
    return Question("".join(part.text for part in content), tuple(part.path for part in content if part.path))
