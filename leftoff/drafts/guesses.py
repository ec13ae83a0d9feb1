"""Drafts that are guessed, one token after the other: how often they are right, and how long they take."""

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from leftoff.cache.turn import Turn
from leftoff.drafts.batch_times import BatchTimes
from leftoff.drafts.trail import Draft, DraftSource
from leftoff.engine.eagle import EagleContext
from leftoff.engine.engine import Work
from leftoff.engine.head import HeadContext
from leftoff.types import Tokens

# Of each token of a draft, if those before it are right.
_PRIOR = (0.7, 0.65, 0.6, 0.6, 0.55, 0.55, *[0.5] * 10)
_PRIOR_WEIGHT = 4  # tokens: as many as were seen to be right or wrong count as much as what was assumed before
_WEIGHT = 0.06  # of the newest token once many were seen: about the last sixteen count
_BEYOND = 0.1  # of a draft that was right to its end, for the tokens that would have come next
_TRIED = 0.01  # the part of the time that guesses may cost more than they bring
_FIRST_CREDIT, _MAX_CREDIT = 2.0, 64.0  # the time of so many tokens: at first or for tries, and of a guesser that pays
_RAREST = 16  # times rarer tries become, if they all fail
_ENOUGH = 8  # tokens that a guesser follows before it is asked again
_NOT_RECKONED = 15  # tokens after one at which no guess paid: to reckon it takes time too


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
        """Its tokens from a position on."""
        before = self.turn.sequence.tokens
        if position >= before.size:
            return self.work.tokens[position - before.size :]
        return np.concatenate([before[position:], self.work.tokens])


class Guesser(Protocol):
    """Reads along with a reply, and guesses what comes next: `HeadGuesser`, `DraftModel`."""

    source: DraftSource

    def attend(self, *, is_worth_it: bool) -> None:
        """Whether to read along with all that is decoded, if that takes time; else it may be asked for nothing."""
        ...

    def lag_ms(self, reply: Reply) -> float:
        """About how long it takes to read what it has not read of the reply. Infinite if it cannot."""
        ...

    def guess(self, reply: Reply, most: int) -> list[int]:
        """Up to `most` tokens. Empty while it still reads: then the call has read a part."""
        ...


class HeadGuesser:
    """The next-token layer of the model, or an EAGLE-3 head: its context reads along with the main one's decodes."""

    def __init__(self, context: HeadContext) -> None:
        self.source = DraftSource.EAGLE if isinstance(context, EagleContext) else DraftSource.MTP
        self._context = context

    def attend(self, *, is_worth_it: bool) -> None:
        self._context.attend(is_worth_it=is_worth_it)

    def lag_ms(self, _: Reply) -> float:
        return 0.0

    def guess(self, reply: Reply, most: int) -> list[int]:
        return self._context.draft(reply.work.seq, reply.work.tokens, reply.turn.position, most)


class Guesses:
    """Learns from every draft of a guesser that was verified. Unlike a match in the log, a guess takes time.

    It keeps an account of that, in times of a token: what guesses cost is taken from its credit, what they bring is
    added, and a hundredth of all time. Without credit the guesser is paused. So what is always wrong costs a hundredth
    and the first credit, however likely it seems to be right. Tries that fail get rarer and rarer.
    """

    def __init__(
        self,
        guesser: Guesser,
        times: BatchTimes,
        step_ms: float,
        wake_ms: float = 0.0,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Measured: `times` of batches, `step_ms` of a guess, and `wake_ms` to let the guesser go on after a pause."""
        self._clock = clock
        self.source = guesser.source
        self.lag_ms = guesser.lag_ms
        self.step_ms = step_ms
        self.chances = [*_PRIOR]
        self.num_sure = 1  # tokens before the last draft, in the same batch
        self.reach = 1  # tokens of the longest draft: more once so many were right
        self._num_seen = [0] * len(_PRIOR)
        self._guesser = guesser
        self._times = times
        self._wake_ms = wake_ms
        self._credit = _FIRST_CREDIT
        self._rarity = 0.5  # doubles when it is paused
        self._num_followed = _ENOUGH  # tokens, since it was paused; negative while it is
        self._num_resting = 0  # tokens that it is left alone for

    def count_token(self) -> None:
        """Another token of a reply comes: a little credit with it."""
        self._credit = min(_MAX_CREDIT, self._credit + _TRIED / max(1.0, self._rarity))
        self._num_resting = max(0, self._num_resting - 1)

    @property
    def is_resting(self) -> bool:
        """Whether this guesser is left alone for this token, or is paused and has no credit to go on."""
        return self._num_resting > 0 or (self._num_followed < 0 and self._credit < self._pause_cost)

    def follow(self, cost: float) -> bool:
        """Goes on to read along, or pauses it if a draft costs so much more than it may bring that no credit suffices.

        True once it has read along for long enough to be asked.
        """
        if cost:  # nothing pays: what was earned before is not spent on tries
            self._credit = min(self._credit, max(_FIRST_CREDIT, cost + self._pause_cost))
        is_paused = self._num_followed < 0
        if self._credit < cost + (self._pause_cost if is_paused else 0.0):
            if not is_paused:
                self._pause()
            self._num_resting = _NOT_RECKONED
            return False
        if is_paused:
            self._guesser.attend(is_worth_it=True)
        self._num_followed += 1
        return self._num_followed >= _ENOUGH

    def draft(self, reply: Reply, length: int, *, is_try: bool) -> Draft | None:
        """Asks the guesser, and takes its time from the credit: of a try also what it had to read first."""
        lag_ms, began = self.lag_ms(reply), self._clock()
        tokens = self._guesser.guess(reply, length)
        took_ms = 1000 * (self._clock() - began)
        # much longer than usual is not the guesser's fault: a GPU is slow at whatever it does for the first time
        guess_ms = min(max(0.0, took_ms - lag_ms), 4 * self.step_ms * len(tokens))
        self.num_sure = int(reply.work.tokens.size)
        self._credit -= (guess_ms + is_try * min(took_ms, lag_ms)) / self._times.ms
        if not tokens:
            return None
        self.step_ms += _WEIGHT * (guess_ms / len(tokens) - self.step_ms)
        return Draft(tokens, 0, self.source)

    def saw(self, num_drafted: int, num_right: int, cost: float = 0.0) -> None:
        """A draft was verified: its first `num_right` tokens are right, and the next one, if there is one, is not.

        To verify it took `cost` times as long as to decode a token.
        """
        self._credit = min(_MAX_CREDIT, self._credit + num_right - cost)
        self.reach = min(max(self.reach, 2 * num_right), len(self.chances))
        if num_right:
            self._rarity = 0.5
        for index in range(min(num_drafted, num_right + 1)):
            self._num_seen[index] += 1
            weight = max(_WEIGHT, 1 / (_PRIOR_WEIGHT + self._num_seen[index]))
            self.chances[index] += weight * ((index < num_right) - self.chances[index])
        if num_right == num_drafted:  # else short drafts that do not pay would never grow to those that do
            for index in range(num_drafted, len(self.chances)):
                self.chances[index] += _BEYOND * (self.chances[num_drafted - 1] - self.chances[index])

    @property
    def _pause_cost(self) -> float:
        """The cost of a pause of the guesser and of its end, in tokens: the size of batches changes, too."""
        return (self._wake_ms + self._times.change_ms) / self._times.ms

    def _pause(self) -> None:
        self._credit -= self._pause_cost
        self._guesser.attend(is_worth_it=False)
        self._num_followed, self._rarity = -1, min(2 * self._rarity, _RAREST)
