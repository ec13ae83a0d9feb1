"""One reply's place in a grammar: which tokens may come next, worked out while the engine decodes."""

import time

import numpy as np
from llguidance import LLMatcher

from leftoff.grammar.ahead import Ahead, Task
from leftoff.grammar.errors import explain
from leftoff.types import Logits

_GOOD_REASONS = frozenset({"NoExtension", "NoExtensionBias", "EndOfSentence"})
_ALLOWED = np.unpackbits(np.arange(256, dtype=np.uint8), bitorder="little")
_EIGHT = np.dtype("V32")  # eight floats are copied as one
# What to add to the logits of eight tokens, by the byte that says which of them are allowed.
_BIASES = np.where(_ALLOWED, 0, -np.inf).astype(np.float32).view(_EIGHT)


# Waking a thread, and waiting for it where cores are scarce, costs about as much. Small vocabularies stay below it.
_HANDING_OVER_SECONDS = 300e-6
_FORGETTING = 0.9


class Matcher:
    """As soon as a token is known, the mask for the next one is on its way, on another thread.

    The state is never touched from two threads: a token is taken only when the mask before it is there.
    """

    def __init__(self, state: LLMatcher, mask_bits: int, ahead: Ahead) -> None:
        self._state = state
        self._ahead = ahead
        self._bits = np.empty((mask_bits + 31) // 32 * 4, np.uint8)
        self._biases = np.empty(self._bits.size, _EIGHT)
        self._seconds = 0.0  # that a mask may take, by the last ones
        self.is_done = False  # nothing can follow
        self._next: Task[Logits] = ahead.submit(self._bias)

    def mask(self, logits: Logits) -> bool:
        logits += self._next.result()[: logits.size]
        return True

    def accept(self, token: int) -> None:
        self._next.result()
        self._state.consume_token(token)
        self.is_done = is_stopped(self._state)
        if not self.is_done:
            is_dear = self._seconds > _HANDING_OVER_SECONDS
            self._next = self._ahead.submit(self._bias) if is_dear else Task(self._bias)

    def _bias(self) -> Logits:
        """Zero for what is allowed, minus infinity for all else."""
        began = time.thread_time()
        self._state.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        is_stopped(self._state)
        _BIASES.take(self._bits, out=self._biases, mode="wrap")  # without a buffer of its own
        self._seconds = max(time.thread_time() - began, _FORGETTING * self._seconds)
        return self._biases.view(np.float32)


def is_stopped(state: LLMatcher) -> bool:
    """A grammar that leads nowhere or outgrows its limits stops too: that must not pass for the end of a reply."""
    stopped = state.is_stopped()
    if stopped and state.stop_reason() not in _GOOD_REASONS:
        raise explain(state.get_error() or state.stop_reason())
    return stopped
