"""Teaches to answer from a fact sheet in prose, to play the part the sheet gives, and to say what it does not say."""

from collections.abc import Callable
from dataclasses import dataclass

from training.chat import Chat
from training.content import Table as Row
from training.draw import Draw, capitalised, fill, uncapitalised, with_article
from training.phrasing import asked, typed
from training.skills.table import Question
from training.values import value, venue

_ROLES = ("assistant", "helper", "guide", "receptionist", "chatbot", "host", "support agent", "shop assistant")
_ENDINGS = ("Ahoy!", "Have a sunny day!", "Beep boop.", "Cheers!", "Stay curious!", "Happy reading!")
_BEGINNINGS = ("Arr!", "Beep!", "Hello!", "Well, well.", "Certainly!", "Of course!")
_INDIRECT = 0.1  # share of questions
_CONFUSABLE = 0.25  # share of sheets in which names and things have words in common


@dataclass(frozen=True)
class Statement:
    """One sentence of a sheet and the questions it answers: (ask, answer, what must be in the answer)."""

    kind: str
    over: str
    said: str
    about: str
    unknown: str
    questions: tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class Persona:
    name: str
    role: str
    place: str


class Sheet:
    """Some statements about a place, some that are missing from it, and questions about both."""

    def __init__(self, draw: Draw, chat: Chat, num_facts: int) -> None:
        self._draw, self._chat = draw, chat
        self.place = venue(draw)
        self._persona = self._make_persona() if draw.chance(0.5) else None
        source = draw.narrowed(12) if draw.chance(_CONFUSABLE) else draw
        facts = make_statements(source, num_facts + max(1, num_facts // 4))
        self.facts, self._missing = facts[:num_facts], facts[num_facts:]
        self._last: Statement | None = None
        chat.topics.append(f"questions about {self.place}")

    def system(self) -> str:
        draw, text = self._draw, self.text()
        intro = self._intro()
        gap = "\n" if "\n" in text or draw.chance(0.3) else " "
        system = f"{intro}{gap}{text}" if intro else text
        if draw.chance(0.2):
            system += gap + self._demand_style()
        if draw.chance(0.25):
            system += gap + draw.phrase("sheet", "rule")
        return system

    def text(self) -> str:
        draw = self._draw
        sentences = [fact.said for fact in self.facts]
        if draw.chance(0.35):
            for _ in range(max(1, len(sentences) // 5)):
                sentences.insert(draw.number(0, len(sentences)), draw.word("filler"))
        shapes = (" ".join(sentences), "\n".join(sentences), "\n".join(f"- {sentence}" for sentence in sentences))
        return draw.weighted(shapes, (6, 2, 2))

    def step(self) -> None:
        steps: list[tuple[float, Callable[[], None]]] = [(60, self._ask), (12, self._ask_missing)]
        if self._last:
            steps.append((15, self._follow))
        if self._persona:
            steps.append((8, self._ask_persona))
        if len(self.facts) > 1:
            steps.append((6, self._ask_two))
        self._draw.weighted([step for _, step in steps], [weight for weight, _ in steps])()

    def question(self) -> Question:
        statement = self._draw.pick(self.facts)
        ask, answer, want = self._draw.pick(statement.questions)
        self._last = statement
        return Question(ask, answer, self._found(statement, answer), want)

    def _ask(self) -> None:
        question = self._indirect() if self._draw.chance(_INDIRECT) else self.question()
        self._chat.turn(asked(self._draw, question.ask), question.answer, question.think)

    def _indirect(self) -> Question:
        """As in "Could you find out where the key is?"."""
        statement = self._last = self._draw.pick(self.facts)
        ask = self._draw.phrase("sheet", "indirect", what=statement.unknown)
        return Question(ask, statement.about, self._found(statement, statement.about), "")

    def _ask_missing(self) -> None:
        if not self._missing:
            return
        statement = self._draw.pick(self._missing)
        ask, answer, _ = self._draw.pick([q for q in statement.questions if _asks_openly(q, statement)])
        reply = self._draw.phrase("sheet", "unknown", what=statement.unknown)
        if self._draw.chance(_INDIRECT):
            ask = self._draw.phrase("sheet", "indirect", what=statement.unknown)
        elif answer.startswith("Yes, the"):
            reply = f"I don't know. {capitalised(with_article(statement.over))} is not mentioned."
        self._chat.turn(asked(self._draw, ask), reply, self._draw.phrase("think", "missing", what=statement.unknown))
        self._last = None

    def _follow(self) -> None:
        last = self._last
        relatives = [f for f in self.facts if last and f.kind == last.kind and f.over != last.over]
        if not relatives:
            return
        fact = self._draw.pick(relatives)
        topic = fact.over if fact.over[0].isupper() else "the " + fact.over.removeprefix("the ")
        topic = fact.over if fact.over.startswith(("a ", "an ")) else topic
        ask = typed(self._draw, self._draw.phrase("recall", "follow", topic=topic))
        self._chat.turn(ask, fact.about, self._found(fact, fact.about))
        self._last = fact

    def _ask_two(self) -> None:
        one, two = self._draw.some(self.facts, 2)
        (ask, answer, _), (next_ask, next_answer, _) = self._draw.pick(one.questions), self._draw.pick(two.questions)
        self._chat.turn(
            f"{ask} And {uncapitalised(next_ask)}", f"{answer} {next_answer}", "Two questions. I answer both."
        )

    def _ask_persona(self) -> None:
        persona, draw = self._persona, self._draw
        if persona is None:
            return
        if draw.chance(0.3):
            self._chat.turn(
                draw.phrase("sheet", "where"), f"I work at {persona.place}.", f"The place is {persona.place}."
            )
            return
        replies = (
            f"I'm {persona.name}, {persona.role} at {persona.place}.",
            f"My name is {persona.name}. I am {persona.role} at {persona.place}.",
        )
        self._chat.turn(draw.phrase("sheet", "who"), draw.pick(replies), f"I am {persona.name}.")

    def _intro(self) -> str:
        if self._persona is None:
            return self._draw.phrase("sheet", "plain", place=self.place)
        who = self._persona
        return self._draw.phrase("sheet", "persona", name=who.name, role=who.role, place=who.place)

    def _make_persona(self) -> Persona:
        draw = self._draw
        name = draw.word("bot_name") if draw.chance(0.5) else value(draw, "first_name")
        return Persona(name, with_article(f"{draw.word('mood')} {draw.pick(_ROLES)}"), self.place)

    def _demand_style(self) -> str:
        """A rule for every reply, which the chat then keeps."""
        if self._draw.chance(0.5):
            ending = self._draw.pick(_ENDINGS)
            self._chat.style = lambda reply: f"{reply} {ending}"
            return f'Always end your answers with "{ending}".'
        beginning = self._draw.pick(_BEGINNINGS)
        self._chat.style = lambda reply: f"{beginning} {reply}"
        return f'Always start your answers with "{beginning}".'

    def _found(self, statement: Statement, answer: str) -> str:
        source = self._draw.phrase("sheet", "source")
        return self._draw.phrase("think", "found", source=source, said=statement.said, answer=answer)


def make_statements(draw: Draw, count: int) -> list[Statement]:
    """Statements of which no two answer the same question. Half of the sheets keep to a few kinds."""
    rows = draw.content.sheet
    kinds = draw.some(rows, draw.number(2, 6)) if count < 12 and draw.chance(0.5) else rows
    found: dict[str, Statement] = {}
    for _ in range(count * 8):
        row = draw.pick(kinds if draw.chance(0.8) else rows)
        statement = make_statement(draw, row)
        key = row["name"] if row.get("single") else f"{_question_kind(row)} {statement.over}"
        found.setdefault(key, statement)
        if len(found) == count:
            break
    statements = list(found.values())
    draw.random.shuffle(statements)
    return statements


def make_statement(draw: Draw, row: Row) -> Statement:
    slots: dict[str, object] = {"x": value(draw, row["over"])}
    slots |= {slot: value(draw, kind) for slot, kind in row.get("values", {}).items()}
    questions = tuple(
        (fill(ask, slots), capitalised(fill(answer, slots)), fill(want, slots))
        for asks, answer, want in row["questions"]
        for ask in asks
    )
    said, about, unknown = (fill(text, slots) for text in (draw.pick(row["says"]), row["about"], row["unknown"]))
    return Statement(row["name"], str(slots["x"]), capitalised(said), capitalised(about), unknown, questions)


def _asks_openly(question: tuple[str, str, str], statement: Statement) -> bool:
    """Whether it can be asked by somebody who knows nothing of the statement but what it is about."""
    _, answer, _ = question
    return answer == statement.questions[0][1] or answer.startswith("Yes, the")


def _question_kind(row: Row) -> str:
    """Kinds over the same words whose questions would mix: "Is smoking allowed?" has one answer."""
    return "rule" if row["over"] == "activity" else "price" if row["over"] == "priced" else str(row["name"])
