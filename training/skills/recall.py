"""Teaches to remember what the user tells: asked for in other words, soon or much later, changed, or never told."""

from collections.abc import Callable

from training.chat import Chat
from training.draw import Draw, capitalised, joined, uncapitalised
from training.phrasing import asked, typed
from training.skills.facts import Fact, make_fact

_MAX_LISTED = 7
_INDIRECT = 0.08  # share of questions
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


class Recall:
    """What the user has told so far, and the turns that come of it."""

    def __init__(self, draw: Draw, chat: Chat) -> None:
        self._draw, self._chat = draw, chat
        self.known: list[Fact] = []
        self._num_asked: dict[str, int] = {}

    def step(self) -> None:
        steps: list[tuple[float, Callable[[], None]]] = [(30.0 if len(self.known) < 14 else 3.0, self.tell)]
        if self.known:
            steps += [(38, self.ask), (7, self.correct), (3, self.count), (8, self.ask_unknown)]
        if 2 <= len(self.known) <= _MAX_LISTED:
            steps.append((6, self.list_all))
        self._draw.weighted([step for _, step in steps], [weight for weight, _ in steps])()

    def tell(self, count: int | None = None) -> None:
        """One message with some facts; sometimes it asks for one of them right away."""
        draw = self._draw
        facts = self._new_facts(count or draw.pick((1, 1, 1, 2, 2, 3, 3, 4, 5)))
        opening, sentences = draw.phrase("recall", "open"), self._sentences(facts)
        message = opening + (uncapitalised(sentences) if opening.endswith(", ") else sentences)
        self.known += facts
        if draw.chance(0.35):
            fact = draw.pick(facts if draw.chance(0.85) else self.known)
            self._chat.turn(
                f"{message} {asked(draw, draw.pick(fact.asks), 0.15)}", draw.pick(fact.answers), self._because(fact)
            )
            return
        you = joined([fact.you for fact in facts])
        reacts = facts[0].reacts if len(facts) == 1 and draw.chance(0.5) else ()
        reply = draw.pick(reacts) if reacts else capitalised(draw.phrase("recall", "acknowledge", you=you))
        self._chat.turn(message, reply, draw.phrase("think", "told", said=capitalised(facts[0].said)))
        self._chat.topics.append(facts[0].subject)

    def ask(self) -> None:
        """For one fact; sometimes goes on to another of its family."""
        draw = self._draw
        fact = draw.weighted(self.known, [1 / (1 + 2 * self._num_asked.get(f.key, 0)) for f in self.known])
        self.ask_for(fact)
        relatives = [
            f
            for f in self.known
            if f.family == fact.family and f.key != fact.key and f.family in ("name", "favourite", "number")
        ]
        if relatives and draw.chance(0.3):
            other = draw.pick(relatives)
            self._chat.turn(
                draw.phrase("recall", "follow", topic=f"my {other.short}"),
                draw.pick(other.answers),
                self._because(other),
            )

    def ask_for(self, fact: Fact) -> None:
        draw = self._draw
        self._num_asked[fact.key] = self._num_asked.get(fact.key, 0) + 1
        is_only = [other.kind for other in self.known].count(fact.kind) == 1
        asks = fact.general if fact.general and is_only and draw.chance(0.3) else fact.asks
        self._chat.turn(self._question(fact, asks), draw.pick(fact.answers), self._because(fact))

    def ask_unknown(self) -> None:
        draw = self._draw
        fact = self._new_facts(1)[0]
        if fact.can_be_unknown:
            reply = draw.phrase("recall", "unknown", subject=fact.subject)
            self._chat.turn(
                self._question(fact, fact.asks), reply, draw.phrase("think", "unknown", subject=fact.subject)
            )

    def correct(self) -> None:
        """The latest word counts."""
        draw = self._draw
        old = draw.pick(self.known)
        new = make_fact(draw, old.kind, old.over or None)
        if new.key != old.key or new.value == old.value:
            return
        self.known[self.known.index(old)] = new
        message = draw.phrase("recall", "correct", said=new.said, old=old.value)
        if draw.chance(0.4):
            self._chat.turn(f"{message} {draw.pick(new.asks)}", draw.pick(new.answers), self._because(new))
        else:
            reply = capitalised(draw.phrase("recall", "corrected", you=new.you))
            self._chat.turn(message, reply, f"It was {old.value} and is now {new.value}.")

    def list_all(self) -> None:
        draw = self._draw
        lines = [fact.you for fact in self.known]
        as_list = "Here is what I know:\n" + "\n".join(f"- {capitalised(line)}." for line in lines)
        reply = as_list if draw.chance(0.4) else f"You told me that {joined(lines)}."
        self._chat.turn(
            typed(draw, draw.phrase("recall", "all")), reply, "I list the facts in the order in which I heard them."
        )

    def count(self) -> None:
        number = len(self.known)
        if number < len(_NUMBERS):
            things = "thing" if number == 1 else "things"
            self._chat.turn(
                self._draw.phrase("recall", "count"), f"You told me {_NUMBERS[number]} {things}.", "I count the facts."
            )

    def _new_facts(self, count: int) -> list[Fact]:
        """Facts that cannot be mistaken for one that is already known."""
        taken = {name for fact in self.known for name in (fact.key, fact.over or fact.key)}
        facts: list[Fact] = []
        while len(facts) < count:
            fact = make_fact(self._draw)
            if taken.isdisjoint((fact.key, fact.over or fact.key)):
                taken |= {fact.key, fact.over or fact.key}
                facts.append(fact)
        return facts

    def _sentences(self, facts: list[Fact]) -> str:
        said = [fact.said for fact in facts]
        if len(said) == 1:
            return capitalised(said[0]) + "."
        shapes = (
            capitalised(joined(said)) + ".",
            " ".join(capitalised(text) + "." for text in said),
            capitalised(said[0]) + ". Also, " + ", ".join(said[1:]) + ".",
            capitalised(", ".join(said[:-1]) + ", and " + said[-1]) + ".",
        )
        return self._draw.weighted(shapes, (4, 5, 1, 1))

    def _question(self, fact: Fact, asks: tuple[str, ...]) -> str:
        """One of the given, or every so often one that only names the fact."""
        if fact.can_be_unknown and self._draw.chance(_INDIRECT):
            return asked(self._draw, self._draw.phrase("recall", "indirect", what=f"my {fact.subject}"))
        return asked(self._draw, self._draw.pick(asks))

    def _because(self, fact: Fact) -> str:
        return self._draw.phrase("think", "known", said=capitalised(fact.said), you=fact.you, value=fact.value)
