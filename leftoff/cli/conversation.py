"""A conversation that can be edited: what `leftoff chat` keeps between the turns. Knows no model and no screen."""

from dataclasses import dataclass, field

Message = dict[str, str]


@dataclass
class Conversation:
    """Pairs of a question and its reply, after an optional system prompt."""

    system: str = ""
    turns: list[tuple[str, str]] = field(default_factory=list)

    def asking(self, question: str) -> list[Message]:
        """The messages of a request."""
        messages = [_message("system", self.system)] if self.system else []
        for asked, reply in self.turns:
            messages += [_message("user", asked), _message("assistant", reply)]
        return [*messages, _message("user", question)]

    def add(self, question: str, reply: str) -> None:
        self.turns.append((question, reply))

    def undo(self) -> str | None:
        """Takes back the last turn; returns what was asked in it, None where there is none."""
        return self.turns.pop()[0] if self.turns else None

    def reset(self) -> None:
        self.turns.clear()


def _message(role: str, content: str) -> Message:
    return {"role": role, "content": content}
