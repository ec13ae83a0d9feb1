"""Facts about a user: what was said, and every way to ask for it. Made from `personal.toml`."""

from dataclasses import dataclass

from training.content import Table
from training.draw import Draw, fill
from training.values import value

Key = str

_OURS = 0.08  # how often a user says "our"


@dataclass(frozen=True)
class Fact:
    """`you` is the fact as the assistant says it; `family` are facts that follow-up questions go between;
    `general` questions fit all facts of a kind, so they may be asked only where one is known."""

    key: Key
    kind: int
    over: str
    family: str
    subject: str
    short: str
    value: str
    said: str
    you: str
    asks: tuple[str, ...]
    general: tuple[str, ...]
    answers: tuple[str, ...]
    reacts: tuple[str, ...]

    @property
    def can_be_unknown(self) -> bool:
        """Whether "your {subject}" names it, so that a question for it makes sense before it was told."""
        return self.family not in ("anything", "others", "does", "did")


def make_fact(draw: Draw, kind: int | None = None, over: str | None = None) -> Fact:
    """A fact of the given kind and subject, or of any."""
    kinds = draw.content.personal
    index = draw.weighted(range(len(kinds)), [_weight(k) for k in kinds]) if kind is None else kind
    row = kinds[index]
    slots: dict[str, object] = {}
    if "over" in row:
        slots["x"], _, slots["z"] = (over or value(draw, row["over"])).partition("|")
    if "also" in row:
        slots["y"] = value(draw, row["also"])
    slots["v"] = value(draw, fill(row["value"], slots))
    subject = fill(row["subject"], slots)
    ours = "over" in row and draw.chance(_OURS)
    return Fact(
        key=fill(row["name"], slots),
        kind=index,
        over="|".join(filter(None, (str(slots.get(slot, "")) for slot in "xz"))),
        family=row.get("family", ""),
        subject=subject,
        short=fill(row["short"], slots) if "short" in row else subject,
        value=str(slots["v"]),
        said=_owned(fill(draw.pick(row["says"]), slots), ours),
        you=fill(row["you"], slots),
        asks=tuple(_owned(fill(ask, slots), ours) for ask in row["asks"]),
        general=tuple(row.get("general", ())),
        answers=tuple(fill(answer, slots) for answer in row["answers"]),
        reacts=tuple(fill(react, slots) for react in row.get("reacts", ())),
    )


def _owned(text: str, ours: bool) -> str:
    """What is "mine" is "ours" where the user is not alone."""
    return text.replace("my ", "our ") if ours else text


def _weight(row: Table) -> float:
    """A kind that stands for many subjects is drawn more often."""
    return 4.0 if "over" in row else 1.0
