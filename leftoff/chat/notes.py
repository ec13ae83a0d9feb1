"""What was done to a conversation before it became a prompt, for the reuse report."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["dropped", "pinned", "cut", "template", "reasoning dropped", "re-rendered"]


@dataclass(frozen=True)
class Note:
    """One line for people; `kind` is for programs."""

    kind: Kind
    text: str

    def __str__(self) -> str:
        return self.text
