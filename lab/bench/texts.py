"""Made-up texts: the same for the same seed, and never twice the same within one."""

import random
from collections.abc import Sequence

# Common words, so that a token is about a word with any tokenizer.
_WORDS = """
the a one every old new small great young long early late first last open quiet green white dark warm
man woman child friend guest teacher writer king city town house room garden road river sea hill tree field
book letter story song map lamp window door table bread water rain snow light morning night winter summer
was is had came went saw found gave took kept read told asked knew made left stood walked lived worked
and but when where while then again before after under over from with without into near between about for
his her their our its some many few all no other same own next only once never always often soon there
"""
WORDS = (*(f" {word}" for word in _WORDS.split()), *["."] * 10)
QUESTIONS = (
    "What is your name?",
    "How are you today?",
    "What can you do for me?",
    "Can you tell me more about it?",
    "What do you think of it?",
    "Where should we go on?",
)
_SHORTEST = 8


class Texts:
    """`scale` shortens everything, for runs that must be quick."""

    def __init__(self, seed: int, *, words: Sequence[str] = WORDS, scale: float = 1.0) -> None:
        self._random = random.Random(seed)
        self._words = words
        self._scale = scale

    def text(self, shortest: int, longest: int | None = None) -> str:
        """A text of so many words."""
        return "".join(self._random.choices(self._words, k=self._length(shortest, longest)))

    def question(self, shortest: int, longest: int | None = None) -> str:
        """A text that ends with something to answer."""
        return f"{self.text(shortest, longest)}. {self._random.choice(QUESTIONS)}"

    def reply(self, longest: int) -> int:
        """How many tokens a reply may have."""
        return max(_SHORTEST, round(self._scale * longest))

    def _length(self, shortest: int, longest: int | None) -> int:
        return max(_SHORTEST, round(self._scale * self._random.randint(shortest, longest or shortest)))
