"""What every skill is: something that adds turns to a chat."""

from typing import Protocol


class Skill(Protocol):
    """`step` adds one turn, or the few that belong together."""

    def step(self) -> None: ...
