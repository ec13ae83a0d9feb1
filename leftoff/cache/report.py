"""Reuse reports: how much of a prompt was reused, and why the rest was prefilled. In tokens: the cache has no text."""

from dataclasses import dataclass
from enum import Enum

import numpy as np

from leftoff.types import Tokens

SHOWN_TOKENS = 24  # on each side of a difference


class Reason(Enum):
    """Why tokens were prefilled."""

    NEW = "new"  # never seen before
    EDITED = "edited"  # the known text goes on differently here
    EVICTED = "evicted"  # known, but evicted
    NO_SNAPSHOT = "no snapshot here"  # known, but the nearest resume point lies before
    OTHER_SALT = "other salt"  # known to the same tenant, but under another salt


@dataclass(frozen=True)
class Reread:
    """Tokens [start, end) were prefilled for one reason."""

    reason: Reason
    start: int
    end: int

    @property
    def num_tokens(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class ReuseReport:
    """[0 ····· reused ····· r)[r ·· known, but read again ·· known)[known ·· new ·· prompt_tokens)."""

    prompt_tokens: int
    reused: int
    known: int
    source: str
    rereads: tuple[Reread, ...]
    before: Tokens  # what followed at `known` when it was last seen
    after: Tokens  # what follows now

    @property
    def computed(self) -> int:
        return self.prompt_tokens - self.reused

    def line(self) -> str:
        """For the log: `reused 18,432 of 18,950 from RAM · 18 no snapshot here · 500 new`."""
        head = f"reused {self.reused:,} of {self.prompt_tokens:,}"
        if self.reused:
            head += f" from {self.source}"
        return " · ".join([head, *(f"{part.num_tokens:,} {part.reason.value}" for part in self.rereads)])


@dataclass(frozen=True)
class Knowledge:
    """How far a prompt was known when it was admitted, and how the known text went on."""

    known: int
    known_elsewhere: int
    lost_until: int
    goes_on_differently: bool
    before: Tokens


def explain(tokens: Tokens, resume: int, source: str, knowledge: Knowledge) -> ReuseReport:
    """Gives every computed token exactly one reason."""
    length = int(tokens.size)
    known = max(knowledge.known, resume)
    elsewhere = max(known, knowledge.known_elsewhere)
    again = Reason.EVICTED if knowledge.lost_until > resume else Reason.NO_SNAPSHOT
    first_seen = Reason.EDITED if knowledge.goes_on_differently else Reason.NEW
    parts = (
        Reread(again, resume, known),
        Reread(Reason.OTHER_SALT, known, elsewhere),
        Reread(first_seen, elsewhere, length),
    )
    return ReuseReport(
        prompt_tokens=length,
        reused=resume,
        known=known,
        source=source,
        rereads=tuple(part for part in parts if part.num_tokens),
        before=np.array(knowledge.before[:SHOWN_TOKENS]),
        after=np.array(tokens[known : known + SHOWN_TOKENS]),
    )
