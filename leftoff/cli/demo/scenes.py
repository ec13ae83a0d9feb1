"""The scenes of `leftoff demo`, as data: what is asked, in which conversation, and what happens before."""

from dataclasses import dataclass

from leftoff.cli.demo.guests import MAX_GUESTS, guest_list


@dataclass(frozen=True)
class Fork:
    """A conversation begins as another one was after some turns."""

    thread: str
    num_turns: int


@dataclass(frozen=True)
class Step:
    """One request. A thread is a conversation: it goes on where its last step ended, in whichever scene that was."""

    label: str
    thread: str
    question: str
    is_first_sight: bool = False  # most of it was never read before: here the cache need not help
    fork: Fork | None = None


@dataclass(frozen=True)
class Scene:
    """Steps that show one thing. `system` is the system prompt of the threads that begin here."""

    title: str
    story: str
    steps: tuple[Step, ...]
    system: str = ""
    restarts: bool = False  # both servers, before the first step


def make_scenes(num_guests: int) -> tuple[Scene, ...]:
    """The longer the guest list, the more there is to gain."""
    desk = guest_list(num_guests, "You answer questions using this guest list:")
    agents = guest_list(num_guests // 4, "You are one of two agents at the desk. Use the guest list below to answer.")
    return (
        Scene(
            "One conversation, turn by turn",
            "a guest list of 3,900 tokens in the system prompt, then short questions",
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
            "Restart, and go on",
            "both servers are stopped and started again; the first conversation goes on",
            (Step("after the restart", "desk", "What is the phone of Leo Fairwood?"),),
            restarts=True,
        ),
    )


SCENES = make_scenes(MAX_GUESTS)
