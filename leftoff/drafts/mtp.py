"""Drafts by the next-token (MTP) layer of the model: how often its guesses are right, and how long they take."""

import time

from leftoff.drafts.trail import Draft, DraftSource
from leftoff.engine.engine import Work
from leftoff.engine.mtp import MtpContext

_PRIOR = (0.7, 0.65, 0.6, 0.6, 0.55, 0.55, 0.5, 0.5)  # of each token of a draft, if those before it are right
_WEIGHT = 0.06  # of the newest token, about the last sixteen count
_RARELY = 64  # tokens after which one is guessed to see whether that would pay by now


class MtpDrafts:
    """Learns from every draft that was verified. Unlike a match in the tree, a guess takes time of its own."""

    def __init__(self, context: MtpContext, step_ms: float) -> None:
        """`step_ms` is the measured time of a guess."""
        self._context = context
        self._num_without = 0
        self.step_ms = step_ms
        self.chances = [*_PRIOR]

    def draft(self, work: Work, start: int, length: int) -> Draft | None:
        """A draft of what follows the work, which the engine decodes next, at `start`."""
        self._num_without += 1
        if not length and self._num_without < _RARELY:
            return None
        self._num_without = 0
        began = time.perf_counter()
        tokens = self._context.draft(work.seq, work.tokens, start, length or 1)
        if not tokens:
            return None
        took_ms = 1000 * (time.perf_counter() - began) / len(tokens)
        self.step_ms += _WEIGHT * (min(took_ms, 4 * self.step_ms) - self.step_ms)
        return Draft(tokens, 0, DraftSource.MTP)

    def saw(self, num_drafted: int, num_right: int) -> None:
        """A draft was verified: its first `num_right` tokens are right, and the next one, if there is one, is not."""
        for index in range(min(num_drafted, num_right + 1)):
            self.chances[index] += _WEIGHT * ((index < num_right) - self.chances[index])
