"""Teaches to keep a list that grows and shrinks."""

from collections.abc import Callable

from training.chat import Chat
from training.draw import Draw, joined
from training.values import value

_ORDINALS = ("first", "second", "third", "fourth")


class Shopping:
    def __init__(self, draw: Draw, chat: Chat) -> None:
        self._draw, self._chat = draw, chat
        self._name = draw.phrase("list", "names")
        self._items: list[str] = []

    def step(self) -> None:
        if not self._items:
            self._start()
            return
        steps: list[tuple[float, Callable[[], None]]] = [
            (35, self._add),
            (15, self._place),
            (12, self._check),
            (25, self._show),
        ]
        if len(self._items) > 2:
            steps.append((15, self._remove))
        self._draw.weighted([step for _, step in steps], [weight for weight, _ in steps])()

    def _start(self) -> None:
        self._items = list(dict.fromkeys(value(self._draw, "grocery") for _ in range(self._draw.number(2, 5))))
        self._chat.topics.append(self._name)
        self._say("start", "started", "New list")

    def _add(self) -> None:
        item = value(self._draw, "grocery")
        if item not in self._items and len(self._items) < 12:
            self._items.append(item)
            self._say("add", "added", f"Add {item}", item)

    def _remove(self) -> None:
        item = self._draw.pick(self._items)
        self._items.remove(item)
        self._say("remove", "removed", f"Remove {item}", item)

    def _place(self) -> None:
        index = self._draw.number(0, min(len(self._items), len(_ORDINALS)) - 1)
        which = f"{_ORDINALS[index]} item on"
        self._turn(f"What is the {which} my {self._name}?", f"The {which} your {self._name} is {self._items[index]}.")

    def _check(self) -> None:
        item = self._draw.pick(self._items) if self._draw.chance(0.5) else value(self._draw, "grocery")
        answer = f"Yes, {item} is" if item in self._items else f"No, {item} is not"
        self._turn(f"Is {item} on my {self._name}?", f"{answer} on your {self._name}.")

    def _show(self) -> None:
        lines = f"Here is your {self._name}:\n" + "\n".join(f"- {item}" for item in self._items)
        sentence = f"Your {self._name} has {joined(self._items)}."
        self._turn(self._draw.phrase("list", "show", name=self._name), self._draw.pick((lines, sentence)))

    def _say(self, ask: str, answer: str, think: str, item: str = "") -> None:
        slots = {"name": self._name, "items": joined(self._items), "item": item}
        question, reply = (self._draw.phrase("list", name, **slots) for name in (ask, answer))
        self._chat.turn(question, reply, f"{think}. Now it has {joined(self._items)}.")

    def _turn(self, question: str, reply: str) -> None:
        self._chat.turn(question, reply, f"The list has {joined(self._items)}.")
