"""The position of one reply in a compiled grammar, and the mask of the tokens that may come next."""

import queue
import threading
import time
from collections.abc import Callable

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
_HANDING_OVER_SECONDS = 300e-6
_DECAY = 0.9


class MaskTask:
    """A mask to compute, once: by a thread of `MaskThreads`, or by the caller of `result` if none has begun.

    Made of two locks, because this is on the path of every token: a `Future` takes several times as long.
    """

    __slots__ = ("_claimed", "_compute", "_error", "_pending", "_result")

    def __init__(self, compute: Callable[[], Logits]) -> None:
        self._compute = compute
        self._claimed = threading.Lock()
        self._pending = threading.Lock()
        self._pending.acquire()
        self._error: BaseException | None = None

    def run(self) -> None:
        if not self._claimed.acquire(blocking=False):
            return
        try:
            self._result = self._compute()
        except BaseException as error:
            self._error = error
        finally:
            self._pending.release()

    def wait(self, seconds: float) -> bool:
        """Whether another thread has computed it within this time."""
        is_done = self._pending.acquire(timeout=seconds)
        if is_done:
            self._pending.release()
        return is_done

    def result(self) -> Logits:
        self.run()
        with self._pending:
            if self._error is not None:
                raise self._error
            return self._result


class MaskThreads:
    """Threads that compute masks while the engine decodes, until `close`."""

    def __init__(self, num_threads: int) -> None:
        self._tasks: queue.SimpleQueue[MaskTask | None] = queue.SimpleQueue()
        names = [f"leftoff-masks-{index}" for index in range(num_threads)]
        self._threads = [threading.Thread(target=self._run, name=name, daemon=True) for name in names]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        for _ in self._threads:
            self._tasks.put(None)

    def submit(self, compute: Callable[[], Logits]) -> MaskTask:
        task = MaskTask(compute)
        self._tasks.put(task)
        return task

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task.run()


class Matcher:
    """Computes the next mask on another thread as soon as a token is accepted.

    No two threads touch `state` at a time: `accept` waits for the mask before it.
    """

    def __init__(self, state: LLMatcher, num_tokens: int, threads: MaskThreads) -> None:
        self._state = state
        self._threads = threads
        self._bits = np.empty((num_tokens + 31) // 32 * 4, np.uint8)
        self._biases = np.empty(self._bits.size, _EIGHT_FLOATS)
        self._seconds = 0.0  # the longest of the last masks, slowly forgotten
        self.is_done = False  # the grammar is complete: no token can follow
        self._next = threads.submit(self._bias)

    def mask(self, logits: Logits) -> bool:
        """Forbids all tokens that the grammar does not allow next. Always returns True."""
        logits += self._next.result()[: logits.size]
        return True

    def accept(self, token: int) -> None:
        self._next.result()
        self._state.consume_token(token)
        self.is_done = is_stopped(self._state)
        if not self.is_done:
            is_slow = self._seconds > _HANDING_OVER_SECONDS
            self._next = self._threads.submit(self._bias) if is_slow else MaskTask(self._bias)

    def _bias(self) -> Logits:
        """What to add to the logits: 0 for allowed tokens, minus infinity for all others."""
        began = time.thread_time()
        self._state.unsafe_compute_mask_ptr(self._bits.ctypes.data, self._bits.nbytes)
        is_stopped(self._state)
        _BIASES.take(self._bits, out=self._biases, mode="wrap")  # other modes allocate a buffer
        self._seconds = max(time.thread_time() - began, _DECAY * self._seconds)
        return self._biases.view(np.float32)


def is_stopped(state: LLMatcher) -> bool:
    """Whether the grammar is complete. Raises `GrammarError` if it failed or exceeded a limit: that ends no reply."""
    stopped = state.is_stopped()
    if stopped and state.stop_reason() not in _GOOD_STOP_REASONS:
        raise explain(state.get_error() or state.stop_reason())
    return stopped
