"""Texts for the tests' own models: as many tokens as words."""

from lab.bench.texts import Texts
from tests.factory import small_vocabulary


def small_texts(seed: int, scale: float = 0.5) -> Texts:
    vocabulary = small_vocabulary()
    words = [vocabulary.tokens[word].replace("Ġ", " ") for word in vocabulary.words]
    return Texts(seed, words=words, scale=scale)
