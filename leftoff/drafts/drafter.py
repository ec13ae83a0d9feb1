"""Chooses drafts for running replies: what comes next by the trail of each, as far as verifying it pays."""

from collections import OrderedDict
from collections.abc import Callable, Iterable

import numpy as np

from leftoff.drafts.batch_times import MOST_TOKENS, BatchTimes
from leftoff.drafts.odds import Odds
from leftoff.drafts.token_log import ORDERS, TokenLog
from leftoff.drafts.trail import Draft, Trail, family_of
from leftoff.types import Tokens

_LOG_TOKENS = 1 << 20  # of one namespace: 20 MiB with its tables
_LOGS_BYTES = 64 << 20  # of all
_LEAST_CHANCE = 0.05  # that all of a draft is right
_LEAST_GAIN = 1.05  # a draft must promise so many times the tokens per second

# The latest tokens that the cache knows of a namespace, so many or a few more; the latest last.
Known = Callable[[str, int], Iterable[Tokens]]


class Drafter:
    """Owns the logs of all namespaces. Belongs to the engine's thread."""

    def __init__(
        self,
        times: BatchTimes,
        *,
        decodes_again: bool,
        most_drafted: int = 24,
        known: Known = lambda _namespace, _most: (),
    ) -> None:
        """With `decodes_again`, a draft that is wrong in part takes all of its batch back, to be decoded again."""
        self.times = times
        self._decodes_again = decodes_again
        self._most_drafted = most_drafted
        self._known = known
        self._odds = Odds()
        self._logs: OrderedDict[str, TokenLog] = OrderedDict()

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
        length = self._best_length(trail, len(tokens), num_sure, num_others) if tokens else 0
        return trail.draft(tokens[:length]) if length else None

    def _best_length(self, trail: Trail, most: int, num_sure: int, num_others: int) -> int:
        """The length with the most tokens for the time, where the other replies wait no longer than for one more."""
        times, chance_after, num_tokens = self.times.multiples, trail.odds.chance, num_sure + num_others
        most = min(most, MOST_TOKENS - num_tokens)
        if most < 1:
            return 0
        best_length, best_rate = 0, _LEAST_GAIN * (1 + num_others) / times[num_tokens]
        longest = times[num_tokens + 1] if num_others else float("inf")
        chance, expected, again = 1.0, 1.0 + num_others, 0.0
        for length in range(1, most + 1):
            right = chance_after(trail.length + length - 1)
            if self._decodes_again:  # this token is the first wrong one: those before it come again in the next batch
                again += chance * (1 - right) * (times[num_sure + length] - 1)
            chance *= right
            if chance < _LEAST_CHANCE:
                break
            expected += chance
            time = times[num_tokens + length]
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
