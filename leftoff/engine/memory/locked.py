"""Page-locked memory, from which a GPU reads and to which it writes several times faster than ordinary memory."""

import queue
import threading
import time
from collections.abc import Callable

from leftoff.engine.memory.arena import Raw

_ALIGNMENT = 4096
_SPARE_S = 10.0


class LockedArea:
    """One page-locked allocation, lent out in parts of any size. `memory` is None where nothing could be locked."""

    def __init__(self, memory: Raw | None, patience_s: float) -> None:
        self._memory = memory
        self.nbytes = 0 if memory is None else memory.nbytes
        self._patience_s = patience_s  # for parts that threads still copy from
        self._lent: dict[int, int] = {}  # where each part that is lent begins and ends
        self._returned: queue.SimpleQueue[Raw] = queue.SimpleQueue()
        self._lock = threading.Lock()
        # The garbage collector may return a part at any moment, also while the lock is held: a simple queue allows it.
        self.give_back = self._returned.put

    def close(self) -> Raw | None:
        """Lets go of the memory, once nobody uses a part of it."""
        memory, self._memory = self._memory, None
        return memory

    def take(self, nbytes: int) -> Raw | None:
        """None if it is larger than the area, or if others keep too much of it for too long."""
        if self._memory is None or not 0 < nbytes <= self.nbytes:
            return None
        with self._lock:
            start = self._wait_for_hole(nbytes)
            if start is None:
                return None
            part = self._memory[start : start + nbytes]
            self._lent[start] = start + -(-nbytes // _ALIGNMENT) * _ALIGNMENT
            return part

    @property
    def is_lent(self) -> bool:
        with self._lock:
            self._free_returned()
            return bool(self._lent)

    def _wait_for_hole(self, nbytes: int) -> int | None:
        until = time.monotonic() + self._patience_s
        while True:
            self._free_returned()
            if (start := self._hole(nbytes)) is not None:
                return start
            try:
                self._free(self._returned.get(timeout=max(0.0, until - time.monotonic())))
            except queue.Empty:
                return None

    def _hole(self, nbytes: int) -> int | None:
        """The lowest place for so many bytes."""
        start = 0
        for begin, end in sorted(self._lent.items()):
            if start + nbytes <= begin:
                return start
            start = end
        return start if start + nbytes <= self.nbytes else None

    def _free_returned(self) -> None:
        while not self._returned.empty():
            self._free(self._returned.get())

    def _free(self, part: Raw) -> None:
        assert self._memory is not None
        del self._lent[int(part.ctypes.data - self._memory.ctypes.data)]


class SpareMemory:
    """The page-locked memory of an engine that was closed, for the next one: to lock it anew takes half a second.

    It is given back if none comes.
    """

    def __init__(self, seconds: float = _SPARE_S) -> None:
        self._seconds = seconds
        self._memory: Raw | None = None
        self._num_left = 0
        self._lock = threading.Lock()

    def leave(self, memory: Raw) -> None:
        with self._lock:
            self._memory = memory
            self._num_left += 1
            timer = threading.Timer(self._seconds, self._give_back, [self._num_left])
        timer.daemon = True
        timer.start()

    def take(self, lock_more: Callable[[int], Raw | None], nbytes: int) -> Raw | None:
        """Memory that another engine has left; if there is none, so many bytes that are locked for it."""
        with self._lock:
            memory, self._memory = self._memory, None
        return lock_more(nbytes) if memory is None else memory

    def _give_back(self, number: int) -> None:
        with self._lock:
            if number == self._num_left:
                self._memory = None
