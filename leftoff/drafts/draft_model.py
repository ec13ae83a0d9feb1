"""A draft model: a smaller model with the same tokens, which guesses what a reply goes on with.

It has an engine and a cache of its own: what it has read of a conversation stays in RAM, beside what the model has, and
is restored when the conversation goes on. It has one slot, and follows one reply at a time:

    model          [0 ············ decoded ············)[ work )
    draft model    [0 ···· read ····)[······· unread ··········)[ guessed, and taken back )

It reads tokens of the reply alone, never its own guesses: those are taken back before anything is kept. So its states
are exact too; if they were not, its guesses would be worse, and no reply wrong.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from leftoff.cache.cache import Cache
from leftoff.cache.capacity import TreeLock
from leftoff.cache.turn import Turn
from leftoff.drafts.guesses import Reply
from leftoff.drafts.trail import DraftSource
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.errors import EngineError
from leftoff.types import Logits

logger = logging.getLogger(__name__)

_READ_MS, _MIN_READ = 100.0, 64  # about how long, and how many tokens at least, it reads between two steps


class DraftModel:
    """Belongs to the thread of the main engine."""

    source = DraftSource.MODEL

    def __init__(self, engine: LlamaEngine, cache: Cache, num_tokens: int, main: TreeLock) -> None:
        """`num_tokens` the model knows: a draft model may have more. `main` locks the model's own cache."""
        self.cache = cache
        self._engine = engine
        self._num_tokens = num_tokens
        self._main = main
        self._followed: Turn | None = None  # that of the reply
        self._turn: Turn | None = None  # its own, once it has begun to read
        self._resume_ms = 0.0  # of what is kept of the reply, before it has
        self._first = 0  # the token that it would say next
        self._is_able = True  # to follow this reply

    def attend(self, *, is_worth_it: bool) -> None:
        """Does nothing: it reads along only when it is asked to guess."""

    def lag_ms(self, reply: Reply) -> float:
        if reply.turn is not self._followed:
            with self._own():
                self._look_up(reply)
        if not self._is_able or reply.length >= self.cache.memory.num_cells:
            return math.inf
        if self._turn is None:
            return self._resume_ms
        return self.cache.costs.prefill_ms(max(0, reply.length - self._turn.position - 1))

    def guess(self, reply: Reply, most: int) -> list[int]:
        if math.isinf(self.lag_ms(reply)):
            return []
        with self._own():
            try:
                self._begin(reply)
                return self._guesses(reply, most) if self._read(reply) else []
            except EngineError as error:
                logger.warning("no drafts by %s for this reply: %s", self._engine.model.path.name, error)
                self._engine.memory.release()
                self._end()
                self._followed, self._is_able = reply.turn, False
                return []

    def tidy(self, is_wanted: Callable[[], bool]) -> None:
        """Saves what it has read, until a request `is_wanted`. Called when nothing runs."""
        with self._own():
            self._end()
            self.cache.save_idle(is_wanted)

    def leave_engine(self) -> None:
        """Takes all sequences out of its engine, which sleeps next."""
        with self._own():
            self._end()
            self.cache.leave_engine()

    def forget(self, is_meant: Callable[[str], bool]) -> None:
        """Forgets the namespaces that are meant."""
        with self._own():
            self._end()
            self.cache.clear(is_meant)

    @contextmanager
    def _own(self) -> Iterator[None]:
        """A thread holds the lock of one cache at a time."""
        with self._main.let_go(), self.cache.lock:
            yield

    def _look_up(self, reply: Reply) -> None:
        """Another reply: what is kept of it, and how long it takes to restore and read the rest."""
        self._end()
        prompt = replace(reply.turn.prompt, tokens=reply.after(0))
        # neither tokens of pictures nor marks of an aLoRA are words of its vocabulary
        self._followed, self._is_able = reply.turn, not prompt.pictures and not prompt.adapted_from
        if self._is_able:
            plan, costs = self.cache.plan(prompt, reply.namespace), self.cache.costs
            self._resume_ms = costs.load_ms(plan.loaded_bytes) + costs.prefill_ms(prompt.length - plan.resume)

    def _begin(self, reply: Reply) -> None:
        if self._turn is None:
            self._turn = self.cache.begin(replace(reply.turn.prompt, tokens=reply.after(0)), reply.namespace)

    def _end(self) -> None:
        """The reply has ended, or is not followed any more. What was read of it can be resumed from."""
        turn, self._turn, self._followed = self._turn, None, None
        if turn is not None:
            self.cache.finish(turn)

    def _read(self, reply: Reply) -> bool:
        """Reads what it has not read of the reply. False if that is much: then it has read a part."""
        turn, costs = self._turn, self.cache.costs
        assert turn is not None
        left = max(_MIN_READ, min(self._engine.batch_tokens, int(_READ_MS * costs.prefill_tokens_per_ms)))
        while turn.position < reply.length:
            if left <= 0:
                return False
            tokens = turn.next_chunk(left) if turn.is_reading else reply.after(turn.position)[:left]
            is_last = turn.position + tokens.size == reply.length
            self.cache.make_cells(tokens.size)
            began = time.perf_counter()
            (row,) = self._engine.decode([Work(turn.seq, tokens, logits=is_last)])
            costs.saw_prefill(tokens.size, 1000 * (time.perf_counter() - began))
            if is_last:
                self._first = self._likeliest(self._engine.logits(row))
            self.cache.advance(turn, tokens)
            left -= tokens.size
        return True

    def _guesses(self, reply: Reply, most: int) -> list[int]:
        """Decodes its own guesses, and takes them back."""
        assert self._turn is not None
        memory, seq, guessed = self._engine.memory, self._turn.seq, [self._first]
        most = min(most, memory.free_cells)
        memory.hold(seq)
        while len(guessed) < most:
            (row,) = self._engine.decode([Work(seq, np.array(guessed[-1:], np.int32))])
            guessed.append(self._likeliest(self._engine.logits(row)))
        if not memory.has_state and not memory.can_cut(seq, reply.length):
            raise EngineError(f"{len(guessed)} guessed tokens cannot be taken back")
        memory.settle(seq, reply.length)
        return guessed

    def _likeliest(self, logits: Logits) -> int:
        return int(logits[: self._num_tokens].argmax())
