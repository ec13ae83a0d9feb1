"""A conversation of 28 turns: facts are told, then there is talk, then the facts are asked for."""

from dataclasses import dataclass

from leftoff.session import Reply, Session

Message = dict[str, str]

TALK = (
    *("How are you?", "What is 7 + 8?", "Tell me a joke.", "What is the capital of France?"),
    *("Tell me a story about a dragon.", "Thank you!", "What can you do?", "What do you do for fun?"),
    *("Who made you?", "How are you today?", "What is 12 + 30?", "Tell me a story about a robot."),
    *("What is the capital of Italy?", "Are you a human?", "Thanks a lot!", "What is 9 - 4?"),
    *("Tell me a story about a cat.", "Good to know."),
)
QUESTIONS = (
    *("What is my name?", "Where do I live?", "What is my cat called?"),
    *("What is my favourite colour?", "What is my locker code?"),
)
_MAX_TOKENS = 24


@dataclass(frozen=True)
class Person:
    """Somebody who tells facts, and asks for them at the end, after some talk or at once."""

    name: str
    city: str
    cat: str
    colour: str
    code: str
    talk: tuple[str, ...] = TALK

    @property
    def facts(self) -> tuple[str, ...]:
        return (self.name, self.city, self.cat, self.colour, self.code)

    @property
    def turns(self) -> tuple[str, ...]:
        told = (
            f"Hello! My name is {self.name}.",
            f"I live in {self.city}.",
            f"My cat is called {self.cat}.",
            f"My favourite colour is {self.colour}.",
            f"My locker code is {self.code}.",
        )
        return (*told, *self.talk, *QUESTIONS)


ANNA = Person("Anna", "Lisbon", "Moss", "teal", "4817")
BEN = Person("Ben", "Oslo", "Pepper", "orange", "2096", talk=())


class Talk:
    """A conversation on its way, in a session that others may use between its turns."""

    def __init__(self, session: Session, person: Person) -> None:
        self._session = session
        self._turns = iter(person.turns)
        self.messages: list[Message] = []
        self.replies: list[Reply] = []

    def go_on(self) -> bool:
        """Plays one turn. False at the end."""
        question = next(self._turns, None)
        if question is None:
            return False
        self.messages.append({"role": "user", "content": question})
        self.replies.append(ask(self._session, self.messages))
        self.messages.append({"role": "assistant", "content": self.replies[-1].text})
        return True

    def play(self) -> "Talk":
        while self.go_on():
            pass
        return self

    @property
    def answers(self) -> list[Reply]:
        """The replies to the questions about the facts."""
        return self.replies[-len(QUESTIONS) :]

    def prompt_of(self, turn: int) -> list[Message]:
        """What the model was shown at a turn, the first of which is 0."""
        return self.messages[: 2 * turn + 1]


def ask(session: Session, messages: list[Message]) -> Reply:
    return session.generate(messages, max_tokens=_MAX_TOKENS)


def tokens_of(replies: list[Reply]) -> list[list[int]]:
    return [reply.tokens for reply in replies]
