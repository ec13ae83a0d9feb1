"""A request in a slot: reading its prompt, then writing its reply."""

import logging
import time
from dataclasses import replace

import numpy as np

from leftoff.cache.turn import Turn
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.errors import EngineError
from leftoff.engine.sampler import Sampler
from leftoff.scheduler.request import Finish, Request
from leftoff.types import Logits

logger = logging.getLogger(__name__)


class Run:
    """Knows what comes next in its sequence. Decodes nothing itself."""

    turn: Turn  # once it has a slot; another one when it goes on after a pause

    def __init__(self, request: Request, engine: LlamaEngine) -> None:
        self.request = request
        self.finish: Finish | None = None
        self.error: Exception | None = None
        self.last_served = 0
        self._engine = engine
        self._sampler: Sampler = engine.sampler(request.sampling)
        self._next = np.empty(1, np.int32)
        if request.sampling.has_penalties:
            self._sampler.accept(request.prompt.tokens)

    @property
    def is_reading(self) -> bool:
        return self.turn.is_reading

    def work(self, limit: int) -> Work:
        """What to decode next: a piece of the prompt up to the next stop, or the token just chosen."""
        if not self.is_reading:
            return Work(self.turn.seq, self._next)
        start, prompt = self.turn.position, self.turn.prompt
        end = min(self.turn.next_piece_end, start + limit)
        return Work(self.turn.seq, prompt.tokens[start:end], logits=end == prompt.length)

    def pause(self) -> None:
        """Gives its slot up. To go on, it reads what it has chosen last, after all that is kept of it."""
        if not self.is_reading:
            so_far = np.concatenate([self.turn.sequence.tokens, self._next])
            self.request.prompt = replace(self.request.prompt, tokens=so_far)

    def choose_from_kept(self, logits: Logits) -> None:
        """The prompt is known to its end, and so are the logits there: no compute at all."""
        if self._wants_none():
            return
        try:
            masked = logits.copy()
            self._mask(masked)
            self._take(self._sampler.sample_from(masked), logits if self.request.wants_logits else None)
        except Exception as error:
            self._fail(error)

    def choose(self, row: int) -> None:
        """Samples the next token from the last batch and hands it out."""
        if self._wants_none():
            return
        try:
            kept = self._engine.logits(row).copy() if self.request.wants_logits else None
            self._take(self._sample(row), kept)
        except Exception as error:
            self._fail(error)

    def close(self) -> None:
        self._sampler.close()

    def _wants_none(self) -> bool:
        """Some only want a prompt to be read."""
        if self.request.max_tokens == 0:
            self.finish = Finish.LENGTH
        return self.request.max_tokens == 0

    def _sample(self, row: int) -> int:
        if self.request.constraint is None:
            return self._sampler.sample(self._engine.context, row)
        if self._mask(self._engine.logits(row)):
            return self._sampler.sample_masked(self._engine.context, row)
        return self._sampler.sample(self._engine.context, row)

    def _mask(self, logits: Logits) -> bool:
        return self.request.constraint is not None and self.request.constraint.mask(logits)

    def _fail(self, error: Exception) -> None:
        """What one constraint or sink cannot follow is no matter of the other replies in the batch."""
        if not isinstance(error, EngineError):
            logger.error("an unforeseen error in a reply", exc_info=error)
        self.finish, self.error = Finish.FAILED, error

    def _take(self, token: int, logits: Logits | None) -> None:
        request, timings = self.request, self.request.timings
        if timings.num_generated == 0:
            timings.first_token = time.perf_counter()
        if self._is_end(token):
            self.finish = Finish.END
            return
        timings.num_generated += 1
        self._next = np.array([token], np.int32)  # a new one: the last is still to be told to the cache
        if request.constraint is not None:
            request.constraint.accept(token)
        if not request.sink.token(token, logits):
            self.finish = Finish.STOPPED
        elif request.constraint is not None and request.constraint.is_done:
            self.finish = Finish.END
        elif request.max_tokens is not None and timings.num_generated >= request.max_tokens:
            self.finish = Finish.LENGTH

    def _is_end(self, token: int) -> bool:
        ignores = self.request.ignore_end and self.request.constraint is None
        return token in self._engine.model.vocabulary.end_tokens and not ignores
