"""Rows for training, while more of them are being made beside it."""

import random

import numpy as np

from training.corpus import Rows


class Supply:
    """Rows in random order. One that was never seen goes first; all come again when none of these is left."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._new: list[Rows] = []
        self._seen: list[Rows] = []
        self.num_rows = 0

    def add(self, rows: Rows) -> None:
        self._new += (Rows(rows.tokens[i : i + 1], rows.weights[i : i + 1]) for i in range(len(rows.tokens)))
        self.num_rows += len(rows.tokens)

    def batch(self, size: int) -> Rows:
        drawn = [self._draw() for _ in range(size)]
        return Rows(np.concatenate([row.tokens for row in drawn]), np.concatenate([row.weights for row in drawn]))

    def _draw(self) -> Rows:
        if not self._new:
            self._new, self._seen = self._seen, []
        index = self._random.randrange(len(self._new))
        self._new[index], self._new[-1] = self._new[-1], self._new[index]
        self._seen.append(self._new.pop())
        return self._seen[-1]
