"""Moves state between a device and ordinary memory, through page-locked memory.

A GPU reads and writes page-locked memory several times faster than ordinary memory, but to lock memory takes longer
than the copy it speeds up. So an area is locked when the model is loaded, and every transfer passes through it:

    save:    device ──> locked                 the engine waits for this copy only
                        locked ──> buffers     threads do the rest while the engine goes on
    load:    pages ──> locked                  threads join pages
                       locked ──> device       and, of what is loaded in several groups, those of the next group

Saved pages and snapshots themselves lie in ordinary memory, whose pages the copying threads touch first. Engines that
compute on the CPU lock nothing: their state is ordinary memory already.
"""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import numpy as np

from leftoff.engine.binding.library import Library
from leftoff.engine.memory.arena import Arena, Buffer, LateBuffer, Raw
from leftoff.engine.memory.locked import LockedArea, SpareMemory
from leftoff.machine import num_cores, physical_ram

_MIN_LOCKED_BYTES, _MAX_LOCKED_BYTES = 480 << 20, 2 << 30
_RAM_PER_LOCKED = 64
_GROUPS_AT_ONCE = 3  # of a long transfer: one is loaded, one is being joined, and there is room between them
_GROUP_BYTES = 32 << 20  # without page-locked memory
_MAX_THREADS = 16
_STORE_THREADS = 4  # beside an engine that computes
_COPY_BYTES = 4 << 20  # of a snapshot, for one thread
_BYTES_PER_BOOKING = 4800.0
_PATIENCE_S = 0.5  # for memory that threads still copy from; then a transfer goes without, more slowly

_spare = SpareMemory()  # of the one build of llama.cpp that a process loads

Fill = Callable[[Raw], None]  # writes all bytes of what it is given
Job = Callable[[], None]


class LockedBuffer(Buffer):
    """Page-locked memory for one transfer. It returns when its last reference goes."""

    __slots__ = ()


class Staging:
    """The page-locked area, and the threads that copy. Without `allocate` nothing is locked, nor copied by threads."""

    def __init__(
        self,
        arena: Arena,
        allocate: Callable[[int], Raw | None] | None = None,
        locked_bytes: int = _MIN_LOCKED_BYTES,
        patience_s: float = _PATIENCE_S,
        leave: Callable[[Raw], None] = lambda _: None,
    ) -> None:
        """`close` gives the area to `leave`."""
        self._arena = arena
        self._leave = leave
        self.bytes_per_booking = _BYTES_PER_BOOKING  # that threads surely write while llama.cpp books a token
        self._locked = LockedArea(allocate(locked_bytes) if allocate is not None else None, patience_s)
        self.num_threads = min(_MAX_THREADS, num_cores()) if self.is_locked else 0
        self._threads = ThreadPoolExecutor(max(1, self.num_threads), "leftoff-load")
        self._store_threads = ThreadPoolExecutor(max(1, min(_STORE_THREADS, self.num_threads)), "leftoff-save")

    def close(self) -> None:
        self._threads.shutdown()
        self._store_threads.shutdown()
        memory = self._locked.close()
        if memory is not None:
            self._leave(memory)

    @property
    def is_locked(self) -> bool:
        """Whether transfers pass through page-locked memory: there is a GPU."""
        return self._locked.nbytes > 0

    @property
    def locked_bytes(self) -> int:
        return self._locked.nbytes

    @property
    def is_lent(self) -> bool:
        """Whether some of the locked memory is in use."""
        return self._locked.is_lent

    @property
    def group_bytes(self) -> int:
        """The most bytes of pages worth moving in one transfer, of several that follow each other."""
        return self._locked.nbytes // _GROUPS_AT_ONCE or _GROUP_BYTES

    @property
    def load_bytes(self) -> int:
        """The most bytes of pages to load in one transfer: half of the area stays for others."""
        return self._locked.nbytes // 2

    def take(self, nbytes: int) -> Buffer:
        """Memory to transfer through: locked, or ordinary memory where no locked memory is needed, or enough is free.

        There is little, so it must be let go soon: `keep` copies what is to stay.
        """
        locked = self._locked.take(nbytes)
        return self._arena.take(nbytes) if locked is None else LockedBuffer(self._locked.give_back, locked, nbytes)

    def keep(self, state: Buffer, nbytes: int) -> Buffer | LateBuffer:
        """The first bytes of a state that was transferred, in ordinary memory."""
        if not isinstance(state, LockedBuffer):
            return self._arena.fit(state, nbytes)
        view = state.view[:nbytes]
        return self.store(nbytes, lambda target: np.copyto(target, view))

    def store(self, nbytes: int, fill: Fill) -> Buffer | LateBuffer:
        """A new buffer, allocated and filled by a thread: allocating takes long while other threads touch memory."""
        if not self.num_threads:
            return self._filled(nbytes, fill)
        return LateBuffer(nbytes, self._store_threads.submit(self._filled, nbytes, fill))

    def begin(self, jobs: Iterable[Job]) -> list[Future[None]]:
        """Starts jobs in this order, each on the next thread that is free. Without threads they are run at once."""
        if not self.num_threads:
            _run_all(jobs)
            return []
        return [self._threads.submit(job) for job in jobs]

    def run(self, jobs: Sequence[Job]) -> None:
        """Runs many short jobs, which must not depend on each other, with all threads. Returns when all are done."""
        num_shares = max(1, self.num_threads)
        shares = (jobs[first::num_shares] for first in range(num_shares))
        for future in self.begin(partial(_run_all, share) for share in shares if share):
            future.result()

    def was_early(self) -> None:
        """Threads wrote less than that while the tokens of a state were booked."""
        self.bytes_per_booking /= 2

    def copy(self, target: Raw, source: Raw) -> None:
        """Copies with all threads."""
        starts = range(0, target.nbytes, _COPY_BYTES)
        self.run([partial(_copy, target, source, start) for start in starts])

    def _filled(self, nbytes: int, fill: Fill) -> Buffer:
        buffer = self._arena.take(nbytes)
        fill(buffer.view)
        return buffer


def _run_all(jobs: Iterable[Job]) -> None:
    for job in jobs:
        job()


def _copy(target: Raw, source: Raw, start: int) -> None:
    np.copyto(target[start : start + _COPY_BYTES], source[start : start + _COPY_BYTES])  # without the GIL


def staging_for(library: Library, arena: Arena) -> Staging:
    """Staging with page-locked memory if the library computes on a device that needs it to transfer fast."""
    dll = library.dll
    for index in range(dll.ggml_backend_dev_count()):
        host_memory = dll.ggml_backend_dev_host_buffer_type(dll.ggml_backend_dev_get(index))
        if host_memory:
            locked_bytes = min(_MAX_LOCKED_BYTES, max(_MIN_LOCKED_BYTES, physical_ram() // _RAM_PER_LOCKED))
            allocate = partial(_spare.take, partial(_page_locked, library, host_memory))
            return Staging(arena, allocate, locked_bytes, leave=_spare.leave)
    return Staging(arena)


class _LockedMemory:
    """One page-locked allocation of the library's, freed with the last array that looks at it."""

    def __init__(self, library: Library, handle: int, nbytes: int) -> None:
        self._library = library
        self._handle = handle
        address = library.dll.ggml_backend_buffer_get_base(handle)
        self.__array_interface__ = {"data": (address, False), "shape": (nbytes,), "typestr": "|u1", "version": 3}

    def __del__(self) -> None:
        self._library.dll.ggml_backend_buffer_free(self._handle)


def _page_locked(library: Library, host_memory: int, nbytes: int) -> Raw | None:
    """Less than was asked for, or None, if no more memory may be locked."""
    handle = library.dll.ggml_backend_buft_alloc_buffer(host_memory, nbytes)
    if handle:
        return np.asarray(_LockedMemory(library, handle, nbytes))
    return _page_locked(library, host_memory, nbytes // 2) if nbytes > _MIN_LOCKED_BYTES else None
