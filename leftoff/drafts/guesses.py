"""Drafts that are guessed, one token after the other: how often they are right, and how long they take."""

import math
import time
from typing import NamedTuple, Protocol

import numpy as np

from leftoff.cache.turn import Turn
from leftoff.drafts.trail import Draft, DraftSource
from leftoff.engine.eagle import EagleContext
from leftoff.engine.engine import Work
from leftoff.engine.mtp import MtpContext
from leftoff.types import Tokens

# Of each token of a draft, if those before it are right.
_PRIOR = (0.7, 0.65, 0.6, 0.6, 0.55, 0.55, *[0.5] * 10)
_WEIGHT = 0.06  # of the newest token, about the last sixteen count
_BEYOND = 0.02  # of a draft that was right to its end, for the tokens that would have come next
_TRIED = 0.01  # the part of the time without guesses that is spent to see whether they would pay by now


class Reply(NamedTuple):
    """A reply that is alone in its batch, before the next one: `work` are its last tokens, which are decoded next."""

    namespace: str
    turn: Turn
    work: Work
    num_left: float = 1.0  # tokens that are expected to come: what is read for their sake is shared among them

    @property
    def length(self) -> int:
        return self.turn.position + self.work.tokens.size

    def after(self, position: int) -> Tokens:
        """All its tokens from there on."""
        before = self.turn.sequence.tokens
        if position >= before.size:
            return self.work.tokens[position - before.size :]
        return np.concatenate([before[position:], self.work.tokens])


class Guesser(Protocol):
    """Reads along with a reply, and guesses what comes next: `MtpGuesser`, `DraftModel`."""

    source: DraftSource

    def lag_ms(self, reply: Reply) -> float:
        """About how long it takes to read what it has not read of the reply. Infinite if it cannot."""
        ...

    def guess(self, reply: Reply, most: int) -> list[int]:
        """Up to `most` tokens. Empty while it still reads: then the call has read a part."""
        ...


class MtpGuesser:
    """The next-token layer of the model, or an EAGLE-3 head: its context reads along with the main one's decodes."""

    def __init__(self, context: MtpContext) -> None:
        self.source = DraftSource.EAGLE if isinstance(context, EagleContext) else DraftSource.MTP
        self._context = context

    def lag_ms(self, _: Reply) -> float:
        return 0.0

    def guess(self, reply: Reply, most: int) -> list[int]:
        return self._context.draft(reply.work.seq, reply.work.tokens, reply.turn.position, most)


class Guesses:
    """Learns from every draft of a guesser that was verified. Unlike a match in the log, a guess takes time."""

    def __init__(self, guesser: Guesser, step_ms: float) -> None:
        """`step_ms` is the measured time of a guess."""
        self.source = guesser.source
        self.lag_ms = guesser.lag_ms
        self._guesser = guesser
        self._without_ms = 0.0
        self.step_ms = step_ms
        self.chances = [*_PRIOR]

    def is_due(self, cost_ms: float, token_ms: float) -> bool:
        """Of a token for which no guess pays: whether to try one that costs so much."""
        self._without_ms += token_ms
        return cost_ms <= _TRIED * self._without_ms

    def draft(self, reply: Reply, length: int) -> Draft | None:
        lag_ms, began = self.lag_ms(reply), time.perf_counter()
        tokens = self._guesser.guess(reply, length)
        if not tokens:
            return None
        self._without_ms = 0.0
        took_ms = max(0.0, 1000 * (time.perf_counter() - began) - lag_ms) / len(tokens)
        self.step_ms += _WEIGHT * (min(took_ms, 4 * self.step_ms) - self.step_ms)
        return Draft(tokens, 0, self.source)

    def saw(self, num_drafted: int, num_right: int) -> None:
        """A draft was verified: its first `num_right` tokens are right, and the next one, if there is one, is not."""
        if num_right:  # which has cost nothing: the next one is tried at once, if it does not pay anyway
            self._without_ms = math.inf
        for index in range(min(num_drafted, num_right + 1)):
            self.chances[index] += _WEIGHT * ((index < num_right) - self.chances[index])
        if num_right == num_drafted:  # else short drafts that do not pay would never grow to those that do
            for index in range(num_drafted, len(self.chances)):
                self.chances[index] += _BEYOND * (1 - self.chances[index])
