"""Chooses drafts for running replies: what comes next by the trail of each, as far as verifying it pays.

Where the trail has nothing that pays, the model's next-token (MTP) layer may guess, if there is one.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable

import numpy as np

from leftoff.drafts.batch_times import MAX_TOKENS, BatchTimes
from leftoff.drafts.mtp import MtpDrafts
from leftoff.drafts.token_log import ORDERS, TokenLog
from leftoff.drafts.trail import Draft, DraftSource, Odds, Trail, family_of
from leftoff.engine.engine import Work
from leftoff.types import Tokens

_LOG_TOKENS = 1 << 20  # of one namespace: 20 MiB with its tables
_LOGS_BYTES = 64 << 20  # of all
_MIN_CHANCE = 0.05  # that all of a draft is right
_MIN_GAIN = 1.05  # a draft must promise so many times the tokens per second

# The latest tokens that the cache knows of a namespace, so many or a few more; the latest last.
Known = Callable[[str, int], Iterable[Tokens]]
Chance = Callable[[int], float]


class Drafter:
    """Owns the logs of all namespaces. Belongs to the engine's thread."""

    def __init__(
        self,
        times: BatchTimes,
        *,
        decodes_again: bool,
        most_drafted: int = 24,
        known: Known = lambda _namespace, _most: (),
        mtp: MtpDrafts | None = None,
        has_trails: bool = True,
    ) -> None:
        """With `decodes_again`, a draft that is wrong in part takes all of its batch back, to be decoded again.

        Without trails all drafts are guesses of the MTP layer.
        """
        self.times = times
        self.has_trails = has_trails
        self._mtp = mtp
        self._decodes_again = decodes_again
        self._most_drafted = most_drafted
        self._known = known
        self._odds = Odds()
        self._logs: OrderedDict[str, TokenLog] = OrderedDict()

    @property
    def has_mtp(self) -> bool:
        return self._mtp is not None

    @property
    def nbytes(self) -> int:
        return sum(log.nbytes for log in self._logs.values())

    def begin(self, namespace: str, prompt: Tokens, num_known: int) -> Trail:
        """The trail of a new reply. The log has seen the first `num_known` tokens of the prompt before."""
        log = self._log(namespace)
        start = max(0, num_known - ORDERS[-1])
        log.add(prompt[start:], start, family_of(prompt))
        return Trail(log, prompt, self._odds)

    def finish(self, namespace: str, trail: Trail, prompt: Tokens) -> None:
        """A reply has ended: others may repeat it."""
        self._log(namespace).add(np.array(trail.reply, np.int32), trail.reply_position, family_of(prompt))

    def forget(self, is_meant: Callable[[str], bool]) -> None:
        """Forgets the namespaces that are meant."""
        for namespace in filter(is_meant, list(self._logs)):
            del self._logs[namespace]

    def draft(self, trail: Trail, most: int, *, num_sure: int = 1, num_others: int = 0) -> Draft | None:
        """A draft of at most so many tokens, if one pays.

        `num_sure` tokens of the reply are decoded in any case, and `num_others` tokens of other replies.
        """
        tokens = trail.expected(min(most, self._most_drafted))
        if not tokens:
            return None
        length = self._best_length(trail.odds.chance, trail.length, len(tokens), num_sure, num_others)
        return trail.draft(tokens[:length]) if length else None

    def guess(self, work: Work, start: int, most: int) -> Draft | None:
        """A draft of the MTP layer, if one pays, for a reply alone in its batch: what follows the work at `start`."""
        mtp = self._mtp
        if mtp is None or most < 1:
            return None
        most = min(most, self._most_drafted, len(mtp.chances))
        step = mtp.step_ms / self.times.ms
        return mtp.draft(work, start, self._best_length(mtp.chances.__getitem__, 0, most, work.tokens.size, 0, step))

    def verified(self, draft: Draft, num_drafted: int, num_right: int) -> None:
        """Learns from a draft whose reply goes on. A trail has learnt at every token already."""
        if draft.source is DraftSource.MTP and self._mtp is not None:
            self._mtp.saw(num_drafted, num_right)

    def _best_length(
        self, chance_after: Chance, first: int, most: int, num_sure: int, num_others: int, step: float = 0.0
    ) -> int:
        """The length of draft that gives the most tokens per second; 0 if none pays.

        Other replies in the batch must not wait longer than for one drafted token. The first token is right with the
        chance `chance_after(first)`, the next with `chance_after(first + 1)` if the first was, and so on. To draft a
        token takes `step` times as long as to decode one.
        """
        times, num_tokens = self.times.multiples, num_sure + num_others
        most = min(most, MAX_TOKENS - num_tokens)
        if most < 1:
            return 0
        best_length, best_rate = 0, _MIN_GAIN * (1 + num_others) / times[num_tokens]
        longest = times[num_tokens + 1] if num_others else float("inf")
        chance, expected, again = 1.0, 1.0 + num_others, 0.0
        for length in range(1, most + 1):
            right = chance_after(first + length - 1)
            if self._decodes_again:  # this token is the first wrong one: those before it come again in the next batch
                again += chance * (1 - right) * (times[num_sure + length] - 1)
            chance *= right
            if chance < _MIN_CHANCE:
                break
            expected += chance
            time = times[num_tokens + length] + step * length
            rate = expected / (time + again)
            if rate > best_rate and time <= longest:
                best_length, best_rate = length, rate
        return best_length

    def _log(self, namespace: str) -> TokenLog:
        log = self._logs.get(namespace)
        if log is None:
            log = TokenLog(_LOG_TOKENS)
            for tokens in self._known(namespace, _LOG_TOKENS // 2):
                log.add(tokens, 0, 0)
            self._logs[namespace] = log
        self._logs.move_to_end(namespace)
        while len(self._logs) > 1 and self.nbytes > _LOGS_BYTES:
            self._logs.popitem(last=False)
        return log
