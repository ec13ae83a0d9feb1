"""Chooses drafts for running replies: what comes next by the trail of each, as far as verifying it pays.

For a reply that runs alone, a draft may be guessed as well, by the model's next-token (MTP) layer or a draft model. Of
all these the one is taken that promises the most tokens per second.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from leftoff.drafts.batch_times import MAX_TOKENS, BatchTimes
from leftoff.drafts.draft_model import DraftModel
from leftoff.drafts.guesses import Guesses, Reply
from leftoff.drafts.token_log import ORDERS, TokenLog
from leftoff.drafts.trail import Draft, Odds, Trail, family_of
from leftoff.types import Tokens

_LOG_TOKENS = 1 << 20  # of one namespace: 20 MiB with its tables
_LOGS_BYTES = 64 << 20  # of all
_MIN_CHANCE = 0.05  # that all of a draft is right
_MIN_GAIN = 1.05  # a draft must promise so many times the tokens per second

# The latest tokens that the cache knows of a namespace, so many or a few more; the latest last.
Known = Callable[[str, int], Iterable[Tokens]]
Chance = Callable[[int], float]


class Promise(NamedTuple):
    """The best length of a draft, and how many times more tokens per second are expected with it; 0 if none pays."""

    length: int = 0
    rate: float = 0.0


class Drafter:
    """Owns the logs of all namespaces. Belongs to the engine's thread."""

    def __init__(
        self,
        times: BatchTimes,
        *,
        decodes_again: bool,
        most_drafted: int = 24,
        known: Known = lambda _namespace, _most: (),
        guesses: Sequence[Guesses] = (),
        has_trails: bool = True,
        model: DraftModel | None = None,
    ) -> None:
        """With `decodes_again`, a draft that is wrong in part takes all of its batch back, to be decoded again.

        Without trails all drafts are guesses. The draft `model` makes some of them.
        """
        self.times = times
        self.has_trails = has_trails
        self.guesses = guesses
        self.model = model
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

    def tidy(self, is_wanted: Callable[[], bool]) -> None:
        """Saves what the draft model has read, until a request `is_wanted`. Called when nothing runs."""
        if self.model is not None:
            self.model.tidy(is_wanted)

    def forget(self, is_meant: Callable[[str], bool]) -> None:
        """Forgets the namespaces that are meant."""
        for namespace in filter(is_meant, list(self._logs)):
            del self._logs[namespace]
        if self.model is not None:
            self.model.forget(is_meant)

    def draft(self, trail: Trail, most: int, *, num_sure: int = 1, num_others: int = 0) -> Draft | None:
        """A draft of at most so many tokens, if one pays.

        `num_sure` tokens of the reply are decoded in any case, and `num_others` tokens of other replies.
        """
        tokens = trail.expected(min(most, self._most_drafted))
        if not tokens:
            return None
        change = self.times.change if num_others else self.times.change_now
        best = self._best(trail.odds.chance, trail.length, len(tokens), num_sure, num_others, change=change)
        return trail.draft(tokens[: best.length], best.rate) if best.length else None

    def guess(self, reply: Reply, most: int, rate: float = 0.0) -> Draft | None:
        """A draft of whoever guesses best, if that pays and more than `rate`, for a reply alone in its batch.

        Where nothing pays, a token is guessed now and then to see whether it would by now.
        """
        num_sure = reply.work.tokens.size
        most = min(most, self._most_drafted, MAX_TOKENS - num_sure)  # many are sure after many wrong drafts
        chosen: tuple[Promise, Guesses] | None = None
        for each in self.guesses if most > 0 else ():
            each.count_token()
            if each.is_resting:
                continue
            promise = self._promise(each, reply, most)
            if promise.length and promise.rate <= max(rate, chosen[0].rate if chosen else 0.0):
                continue
            cost = 0.0 if promise.length else self._cost_of_try(each, reply)
            # what is decoded again comes without a try: that none pays then tells nothing of the guesser
            if not promise.length and (rate or chosen is not None or num_sure > 1 or math.isinf(cost)):
                continue
            if each.follow(cost):
                chosen = promise, each
        if chosen is None:
            return None
        promise, guesses = chosen
        return guesses.draft(reply, max(1, promise.length), is_try=not promise.length)

    def _promise(self, guesses: Guesses, reply: Reply, most: int) -> Promise:
        """The best length of a guessed draft. Without the change of size: a guesser that pays drafts at every step."""
        token_ms, num_sure = self.times.ms, reply.work.tokens.size
        step, lag = guesses.step_ms / token_ms, guesses.lag_ms(reply) / token_ms / max(1.0, reply.num_left)
        most = min(most, guesses.reach)
        return self._best(guesses.chances.__getitem__, 0, most, num_sure, 0, step, lag)

    def _cost_of_try(self, guesses: Guesses, reply: Reply) -> float:
        """The cost of one token that is guessed wrong, in multiples of the time to decode one."""
        read, num_sure = guesses.step_ms + guesses.lag_ms(reply), reply.work.tokens.size
        return read / self.times.ms + self._cost_of_draft(num_sure, 1, 0)

    def _cost_of_draft(self, num_sure: int, num_drafted: int, num_right: int) -> float:
        """How much longer a batch takes with a draft, and the next one if tokens are decoded again."""
        times = self.times.multiples
        cost = times[min(num_sure + num_drafted, MAX_TOKENS)] - times[num_sure]
        if self._decodes_again and num_right < num_drafted:
            cost += times[min(num_sure + num_right + 1, MAX_TOKENS)] - 1
        return cost

    def verified(self, draft: Draft, num_drafted: int, num_right: int) -> None:
        """Learns from a draft whose reply goes on. A trail has learnt at every token already."""
        for each in self.guesses:
            if each.source is draft.source:
                each.saw(num_drafted, num_right, self._cost_of_draft(each.num_sure, num_drafted, num_right))

    def _best(
        self,
        chance_after: Chance,
        first: int,
        most: int,
        num_sure: int,
        num_others: int,
        step: float = 0.0,
        lag: float = 0.0,
        change: float = 0.0,
    ) -> Promise:
        """The length of draft that gives the most tokens per second.

        Other replies in the batch must not wait longer than for one drafted token. The first token is right with the
        chance `chance_after(first)`, the next with `chance_after(first + 1)` if the first was, and so on. To draft a
        token takes `step` times as long as to decode one; with each comes `lag` times as long of what had to be read,
        and with the draft `change` times as long, since the batches before it are of one token.
        """
        times, num_tokens = self.times.multiples, num_sure + num_others
        most = min(most, MAX_TOKENS - num_tokens)
        if most < 1:
            return Promise()
        decoded_again = times[num_tokens] - times[1 + num_others]  # in any case: no reason for a longer draft
        best, base = Promise(), (1 + num_others) / times[1 + num_others]
        best_rate = _MIN_GAIN * base
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
            rate = expected / (time - decoded_again + again + change + lag * expected)
            if rate > best_rate and time <= longest:
                best, best_rate = Promise(length, rate / base), rate
        return best

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
