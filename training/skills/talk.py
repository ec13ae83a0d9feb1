"""Teaches small talk, what the model is, what it cannot do, and simple facts about the world."""

from training.chat import Chat
from training.draw import Draw, fill, joined
from training.phrasing import asked, typed

_ABOUT_ITSELF = 3  # the first rows of smalltalk.toml say who the model is; a persona says otherwise


class Talk:
    """`is_itself` is false where the system prompt gives the model another name."""

    def __init__(self, draw: Draw, chat: Chat, *, is_itself: bool = True) -> None:
        self._draw, self._chat = draw, chat
        self._rows = draw.content.smalltalk[0 if is_itself else _ABOUT_ITSELF :]
        self._weights = [row.get("weight", 1.0) for row in self._rows]

    def step(self) -> None:
        row = self._draw.weighted(self._rows, self._weights)
        self._chat.turn(typed(self._draw, self._draw.pick(row["asks"]), 0.15), self._draw.pick(row["answers"]))


class World:
    def __init__(self, draw: Draw, chat: Chat) -> None:
        self._draw, self._chat = draw, chat

    def step(self) -> None:
        make = self._draw.weighted((self._pair, self._sum, self._calendar), (70, 25, 10))
        ask, answer = make()
        question = asked(self._draw, ask, 0.15) if ask.endswith("?") and self._draw.chance(0.5) else ask
        self._chat.turn(question, answer, f"I know this: {answer}")

    def _pair(self) -> tuple[str, str]:
        rows = self._draw.content.world
        row = self._draw.weighted(rows, [row["weight"] for row in rows])
        left, right = self._draw.pick(list(row["pairs"].items()))
        self._chat.topics.append(row["topic"])
        slots: dict[str, object] = {"k": left, "v": right}
        return fill(self._draw.pick(row["asks"]), slots), fill(row["answer"], slots)

    def _sum(self) -> tuple[str, str]:
        a, b = (self._draw.number(0, 12 if self._draw.chance(0.6) else 50) for _ in range(2))
        a, b = max(a, b), min(a, b)
        sign, word, result = self._draw.pick((("+", "plus", a + b), ("-", "minus", a - b)))
        if a <= 12 and self._draw.chance(0.4):
            sign, word, result = "*", "times", a * b
        asks = (
            f"What is {a} {sign} {b}?",
            f"What's {a} {word} {b}?",
            f"{a} {sign} {b} =",
            f"How much is {a} {word} {b}?",
        )
        ask = self._draw.pick((*asks, f"Calculate {a} {sign} {b}."))
        return ask, f"{a} {word if word in ask else sign} {b} is {result}."

    def _calendar(self) -> tuple[str, str]:
        kind = self._draw.pick(("day", "month"))
        names, days = self._draw.content.words[kind], self._draw.content.words["day"]
        index = self._draw.number(0, len(names) - 1)
        here, after, before = names[index], names[(index + 1) % len(names)], names[index - 1]
        return self._draw.pick(
            (
                (f"Which {kind} comes after {here}?", f"{after} comes after {here}."),
                (f"Which {kind} comes before {here}?", f"{before} comes before {here}."),
                (f"If this {kind} is {here}, what is the next?", f"The next {kind} is {after}."),
                ("What are the days of the week?", f"The days of the week are {joined(days)}."),
            )
        )
