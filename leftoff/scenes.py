"""The script of the demonstration: questions about a hotel's guest list, in several conversations."""

from collections.abc import Iterator
from dataclasses import dataclass

_GIVEN = ["Anna", "Ben", "Clara", "David", "Emma", "Felix", "Greta", "Hugo", "Ida", "Jonas", "Kate", "Leo"]
_BEGINNINGS = ["Ash", "Brook", "Cran", "Dun", "East", "Fair", "Green", "Hart", "King", "Lang", "Mill", "North"]
_ENDINGS = ["bury", "field", "ford", "ham", "ley", "mere", "ridge", "stone", "ton", "wick", "wood", "worth"]
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]

_GUEST_TOKENS = 27.0  # of a line, about, by the vocabulary of the model that comes with leftoff
MAX_GUESTS = len(_BEGINNINGS) * len(_ENDINGS)


@dataclass(frozen=True)
class Fork:
    """The start of a conversation: a copy of another one's first turns."""

    thread: str
    num_turns: int


@dataclass(frozen=True)
class Step:
    """One request. `thread` names its conversation, which may have begun in an earlier scene."""

    label: str
    thread: str
    question: str
    is_first_sight: bool = False  # most of its prompt is new: the cache need not help
    fork: Fork | None = None
    model: int = 0  # which of the models is asked


@dataclass(frozen=True)
class Scene:
    """Steps that show one use of the cache. `system` is the system prompt of the conversations that begin here."""

    title: str
    story: str
    steps: tuple[Step, ...]
    system: str = ""
    restarts: bool = False  # both servers are restarted before the first step
    num_models: int = 1


def make_scenes(num_guests: int, guest_tokens: float = _GUEST_TOKENS) -> tuple[Scene, ...]:
    """The longer the guest list, the more prompt tokens there are to reuse."""
    num_tokens = round(guest_tokens * num_guests, -2)
    desk = guest_list(num_guests, "You answer questions using this guest list:")
    agents = guest_list(num_guests // 4, "You are one of two agents at the desk. Use the guest list below to answer.")
    turns = guest_list(num_guests // 4, "You answer in turns with another model. Use the guest list below to answer.")
    return (
        Scene(
            "One conversation, turn by turn",
            f"a guest list of {num_tokens:,.0f} tokens in the system prompt, then short questions",
            (
                Step("turn 1", "desk", "Hello! My name is Clara.", is_first_sight=True),
                Step("turn 2", "desk", "What is the room of Hugo Brookford?"),
                Step("turn 3", "desk", "What is my name?"),
            ),
            desk,
        ),
        Scene(
            "Edit an old message, then come back",
            "turn 2 is asked anew, then the first conversation goes on",
            (
                Step("edit turn 2", "edited", "What is the phone of Leo Fairwood?", fork=Fork("desk", 1)),
                Step("come back", "desk", "What is the phone of Hugo Brookford?"),
            ),
        ),
        Scene(
            "Two agents take turns in one slot",
            "they have the same instructions and a conversation each",
            (
                Step("agent A", "A", "What is the room of Jonas Cranmere?", is_first_sight=True),
                Step("agent B", "B", "My name is Leo. What is the phone of Jonas Brookley?"),
                Step("agent A", "A", "What is the phone of Jonas Cranmere?"),
                Step("agent B", "B", "What is my name?"),
            ),
            agents,
        ),
        Scene(
            "Two models take turns",
            "a model that makes way for the other sleeps, and keeps what it has read",
            (
                Step("first model", "one", "What is the room of Ben Ashstone?", is_first_sight=True),
                Step(
                    *("second model", "two", "My name is Emma. What is the phone of Clara Ashford?"),
                    is_first_sight=True,
                    model=1,
                ),
                Step("first model", "one", "What is the phone of Ben Ashstone?"),
                Step("second model", "two", "What is my name?", model=1),
            ),
            turns,
            num_models=2,
        ),
        Scene(
            "Restart, and go on",
            "both servers are stopped and started again; the first conversation goes on",
            (Step("after the restart", "desk", "What is the phone of Leo Fairwood?"),),
            restarts=True,
        ),
    )


def guest_list(num_guests: int, intro: str) -> str:
    """A system prompt of some 27 tokens for each guest."""
    return "\n".join([intro, "", *(line for line, _ in zip(_lines(), range(num_guests), strict=False))])


def _lines() -> Iterator[str]:
    """Every surname and room occurs once: the multipliers have no factor in common with the moduli."""
    for index in range(MAX_GUESTS):
        beginning, ending = divmod(index, len(_ENDINGS))
        given = _GIVEN[(5 * beginning + 7 * ending) % len(_GIVEN)]
        guest = f"{given} {_BEGINNINGS[beginning]}{_ENDINGS[ending]}"
        room, phone = 101 + index * 617 % 898, 1009 + index * 7919 % 8990
        yield f"guest: {guest}; room: {room}; check-out: {_DAYS[index * 5 % 7]}; phone: {phone}"


SCENES = make_scenes(MAX_GUESTS)
