"""A seeded source of choices, words and filled phrasings. All randomness of the generator passes through here."""

import random
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import TypeVar

from training.content import Content

Choice = TypeVar("Choice")


class Slots(dict[str, object]):
    """Values for the slots of a phrasing. From `x` follow `X`, capitalised, `an_x`, with its article, and `An_x`."""

    def __missing__(self, name: str) -> str:
        if name.startswith("an_"):
            return with_article(str(self[name[3:]]))
        if name.startswith("An_"):
            return capitalised(with_article(str(self[name[3:]])))
        if name[0].isupper():
            return capitalised(str(self[name[0].lower() + name[1:]]))
        raise KeyError(name)


class Draw:
    """Draws from one `Content` by one random generator."""

    def __init__(self, seed: int | str, content: Content) -> None:
        self.random = random.Random(seed)
        self.content = content

    def narrowed(self, size: int) -> "Draw":
        """The same randomness over a few words of every list and no new ones: values that are easily confused."""
        words = {kind: self.some(choices, size) for kind, choices in self.content.words.items()}
        narrow = copy(self)
        narrow.content = replace(self.content, words=words, novelty=0.0)
        return narrow

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def number(self, low: int, high: int) -> int:
        """Both ends are possible."""
        return self.random.randint(low, high)

    def pick(self, choices: Sequence[Choice]) -> Choice:
        return self.random.choice(choices)

    def weighted(self, choices: Sequence[Choice], weights: Sequence[float]) -> Choice:
        return self.random.choices(choices, weights)[0]

    def some(self, choices: Sequence[Choice], count: int) -> list[Choice]:
        return self.random.sample(choices, min(count, len(choices)))

    def word(self, kind: str) -> str:
        return self.pick(self.content.words[kind])

    def phrase(self, group: str, name: str, /, **slots: object) -> str:
        return fill(self.pick(self.content.phrases[group][name]), slots)


def fill(phrasing: str, slots: dict[str, object]) -> str:
    return phrasing.format_map(Slots(slots))


def capitalised(text: str) -> str:
    return text[:1].upper() + text[1:]


def uncapitalised(text: str) -> str:
    """As it stands inside a sentence: "I" stays."""
    return text if text[:2] in ("I ", "I'") or text[:1].isdigit() else text[:1].lower() + text[1:]


def with_article(text: str) -> str:
    return ("an " if text[:1].lower() in "aeiou" else "a ") + text


def joined(items: Sequence[str]) -> str:
    """As in "a, b and c"."""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]
