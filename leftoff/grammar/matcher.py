"""The position of one reply in a compiled grammar, and the mask of the tokens that may come next."""

import time
from concurrent.futures import Executor, Future
from contextlib import suppress

import numpy as np
from llguidance import LLMatcher

from leftoff.grammar.errors import explain
from leftoff.types import Logits

_GOOD_STOP_REASONS = frozenset({"NoExtension", "NoExtensionBias", "EndOfSentence"})
_ALLOWED = np.unpackbits(np.arange(256, dtype=np.uint8), bitorder="little")
_EIGHT_FLOATS = np.dtype("V32")  # copied as one item
# Row b is the bias for eight tokens: 0 where bit i of the mask byte b is set, minus infinity elsewhere.
_BIASES = np.where(_ALLOWED, 0, -np.inf).astype(np.float32).view(_EIGHT_FLOATS)

# Waking a thread and waiting for it where cores are scarce takes as long. Masks of small vocabularies take less.
_HAND_OVER_SECONDS = 300e-6
_DECAY = 0.9


class Matcher:
    """Computes the next mask on a thread of `executor` as soon as a token is accepted, while the engine decodes.

    No two threads touch `state` at a time: `accept` waits for the mask before it.
    """

    def __init__(
        self,
        state: LLMatcher,
        num_tokens: int,
        executor: Executor,
        *,
        hand_over_seconds: float = _HAND_OVER_SECONDS,
    ) -> None:
        self._state = state
        self._hand_over_seconds = hand_over_seconds
        self._executor = executor
        self._bits = np.empty((num_tokens + 31) // 32 * 4, np.uint8)
        self._biases = np.empty(self._bits.size, _EIGHT_FLOATS)
        self._seconds = 0.0  # the longest of the last masks, slowly forgotten
        self.is_done = False  # the grammar is complete: no token can follow
        self._is_computed = False
        self._computing: Future[None] | None = self._submit()

    def mask(self, logits: Logits) -> bool:
        """Forbids all tokens that the grammar does not allow next. Always returns True."""
        self._finish_mask()
        logits += self._biases.view(np.float32)[: logits.size]
        return True

    def accept(self, token: int) -> None:
        self._finish_mask()
        self._state.consume_token(token)
        self.is_done = is_stopped(self._state)
        if not self.is_done:
            self._is_computed = False
            self._computing = self._submit() if self._seconds > self._hand_over_seconds else None

    def _submit(self) -> Future[None] | None:
        with suppress(RuntimeError):  # the executor is shut down while the last replies end
            return self._executor.submit(self._compute_mask)
        return None

    def _finish_mask(self) -> None:
        """Waits for the mask, or computes it here if no thread has begun."""
        if self._is_computed:
            return
        if self._computing is None or self._computing.cancel():
            self._compute_mask()
        else:
            self._computing.result()
        self._is_computed = True

    def _compute_mask(self) -> None:
        """Sets the biases to add to the logits: 0 for allowed tokens, minus infinity for all others."""
        began = time.thread_time()
        self._state.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        is_stopped(self._state)
        _BIASES.take(self._bits, out=self._biases, mode="wrap")  # other modes allocate a buffer
        self._seconds = max(time.thread_time() - began, _DECAY * self._seconds)


def is_stopped(state: LLMatcher) -> bool:
    """Whether the grammar is complete. Raises `GrammarError` if it stopped for another reason, such as a limit."""
    stopped = state.is_stopped()
    if stopped and state.stop_reason() not in _GOOD_STOP_REASONS:
        raise explain(state.get_error() or state.stop_reason())
    return stopped
