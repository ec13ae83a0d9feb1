"""A pool of buffers for saved pages and snapshots.

Copying into memory that was touched before is several times faster than into fresh memory. So buffers are pooled. One
returns when its last reference goes, so that it can neither leak nor be reused while it is read. When the engine is
idle, `refill` replaces what was taken from the pool.
"""

import mmap
import threading
from collections import defaultdict, deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from leftoff.engine.errors import BlobError, InputError
from leftoff.engine.memory.base import Bytes

Raw = npt.NDArray[np.uint8]
Allocate = Callable[[int], Raw]

_SMALLEST = 4096
_PAGE = 4096  # of the system's memory
_READY_BYTES = 64 << 20
_TOUCHED_AT_ONCE = 2 << 20
_HUGE_FROM = 4 << 20  # NumPy asks for huge pages from here on
_STEPS = 8  # sizes per doubling: at most an eighth of a buffer is unused


class Buffer:
    """`nbytes` bytes of a pool. Views of it keep it from being reused."""

    __slots__ = ("_give_back", "_raw", "address", "nbytes")

    def __init__(self, give_back: Callable[[Raw], None], raw: Raw, nbytes: int) -> None:
        self._give_back = give_back
        self._raw = raw
        self.address = int(raw.ctypes.data)
        self.nbytes = nbytes

    @property
    def capacity(self) -> int:
        return self._raw.nbytes

    @property
    def view(self) -> Raw:
        return np.asarray(self)

    @property
    def __array_interface__(self) -> dict[str, object]:
        # an array made from this holds a reference to the buffer itself, not to the memory under it
        return {"data": (self.address, False), "shape": (self.nbytes,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        self._give_back(self._raw)


class LateBuffer:
    """A buffer that a thread still allocates and fills. Whoever looks at it waits."""

    __slots__ = ("_filled", "nbytes")

    def __init__(self, nbytes: int, filled: Future[Buffer]) -> None:
        self.nbytes = nbytes
        self._filled = filled

    @property
    def view(self) -> Raw:
        try:
            return self._filled.result().view
        except Exception as error:
            raise BlobError(f"{self.nbytes} bytes could not be saved: {error}") from error


def view_of(data: Bytes) -> Raw:
    """The bytes of a page or snapshot that this engine saved; `InputError` if they are elsewhere, such as on disk."""
    if not isinstance(data, Buffer | LateBuffer):
        raise InputError(f"{type(data).__name__} was not saved by this engine: only its own pages and snapshots load")
    return data.view


class Arena:
    """Hands out buffers of the pool, and keeps up to `idle_limit` bytes of returned ones."""

    def __init__(self, allocate: Allocate | None = None, idle_limit: int = 1 << 30) -> None:
        self._allocate = allocate or _in_huge_pages
        self._idle: dict[int, list[Raw]] = defaultdict(list)
        self._taken_fresh: deque[int] = deque(maxlen=1024)  # sizes
        self._new: Raw | None = None  # allocated by `refill`, and touched as far as `_num_touched`
        self._num_touched = 0
        # Reentrant: the garbage collector may run while the lock is held, and return a buffer.
        self._lock = threading.RLock()
        self.idle_limit = idle_limit
        self.keeps_idle = True  # else what returns is freed: nobody will take it soon
        self.idle_bytes = 0
        self.lent_bytes = 0

    def take(self, nbytes: int) -> Buffer:
        size = _size_class(nbytes)
        raw = self._take_idle(size)
        if raw is None:
            raw = self._allocate(size)
            self._taken_fresh.append(size)
        with self._lock:
            self.lent_bytes += size
        return Buffer(self._take_back, raw, nbytes)

    def fit(self, buffer: Buffer, nbytes: int) -> Buffer:
        """Shortens a buffer, by copying it to a smaller one where that frees memory."""
        if _size_class(nbytes) == buffer.capacity:
            buffer.nbytes = nbytes
            return buffer
        smaller = self.take(nbytes)
        smaller.view[:] = buffer.view[:nbytes]
        return smaller

    def refill(self) -> bool:
        """Allocates and touches a buffer for each that `take` had to allocate: the next request likely needs as much.

        Called when idle, until it returns False. It touches little at once, so that no request waits for it.
        """
        if not self.keeps_idle:
            return False
        if self._new is not None:
            self._touch_more(self._new)
        elif self._taken_fresh:
            size = self._taken_fresh.popleft()
            if self.idle_bytes + size <= min(_READY_BYTES, self.idle_limit):
                self._new, self._num_touched = self._allocate(size), 0
        else:
            return False
        return True

    def free_idle(self) -> None:
        """Frees what was returned, and what will be until `keeps_idle` is set again."""
        with self._lock:
            self.keeps_idle = False
            for buffers in self._idle.values():
                buffers.clear()
            self.idle_bytes = 0

    def _touch_more(self, new: Raw) -> None:
        end = self._num_touched + _TOUCHED_AT_ONCE
        new[self._num_touched : end : _PAGE] = 0
        self._num_touched = end
        if end >= new.nbytes:
            self._new = None
            with self._lock:
                self._idle[new.nbytes].append(new)
                self.idle_bytes += new.nbytes

    def _take_idle(self, size: int) -> Raw | None:
        with self._lock:
            idle = self._idle[size]  # made here and never removed, so that `_take_back` allocates nothing
            if not idle:
                return None
            self.idle_bytes -= size
            return idle.pop()

    def _take_back(self, raw: Raw) -> None:
        with self._lock:
            self.lent_bytes -= raw.nbytes
            if self.keeps_idle and self.idle_bytes + raw.nbytes <= self.idle_limit:
                self._idle[raw.nbytes].append(raw)
                self.idle_bytes += raw.nbytes


def _size_class(nbytes: int) -> int:
    step = max(_SMALLEST, (1 << max(0, nbytes - 1).bit_length()) // (2 * _STEPS))
    return -(-max(1, nbytes) // step) * step


def _in_huge_pages(nbytes: int) -> Raw:
    """Where the system has them: one thread touches them four times faster."""
    return np.empty(nbytes, np.uint8)


def in_small_pages(nbytes: int) -> Raw:
    """For several threads that touch memory at once: in huge pages they are no faster, and others wait for them.

    On an H200's machine a request that came meanwhile waited up to 40 ms before it was read.
    """
    if nbytes < _HUGE_FROM:
        return np.empty(nbytes, np.uint8)
    memory = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(AttributeError, OSError):  # a system that knows none
        memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, np.uint8)
