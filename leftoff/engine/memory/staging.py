"""Moves state between a device and ordinary memory, through a few chunks of page-locked memory.

A GPU reads and writes page-locked memory several times faster than ordinary memory, but to lock memory takes longer
than the copy it speeds up. So a few chunks are locked when the model is loaded, and every transfer passes through them:

    save:    device ──> chunk                  the engine waits for this copy only
                        chunk ──> buffers      threads do the rest while the engine goes on
    load:    pages ──> chunk                   threads join the next pages
                       chunk ──> device        while the engine loads the ones before

Saved pages and snapshots themselves lie in ordinary memory, whose pages the copying threads touch first. Engines that
compute on the CPU have no chunks: their state is ordinary memory already.
"""

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import numpy as np

from leftoff.engine.binding.library import Library
from leftoff.engine.memory.arena import Arena, Buffer, LateBuffer, Raw
from leftoff.machine import num_cores, physical_ram

_MIN_CHUNK_BYTES, _MAX_CHUNK_BYTES = 160 << 20, 512 << 20
_RAM_PER_CHUNK = 256  # times its size: each transfer passes over all cells, so that few large ones are faster
_GROUP_BYTES = 32 << 20
_NUM_CHUNKS = 3
_MOST_THREADS = 16
_STORE_THREADS = 4  # beside an engine that computes
_PIECE_BYTES = 4 << 20  # of a snapshot, for one thread
_PATIENCE_S = 10.0  # for a chunk that a thread still copies from

Fill = Callable[[Raw], None]  # writes all bytes of what it is given
Job = Callable[[], None]


class Chunk(Buffer):
    """Page-locked memory for one transfer. It returns when its last reference goes."""

    __slots__ = ()


class Staging:
    """The chunks, and the threads that copy. `chunk_bytes` is 0 where state needs no chunks."""

    def __init__(
        self, arena: Arena, allocate: Callable[[int], Raw | None] | None = None, chunk_bytes: int = _MIN_CHUNK_BYTES
    ) -> None:
        self._arena = arena
        self._allocate = allocate
        self.chunk_bytes = 0
        self._allocate_chunks(chunk_bytes)
        self.num_threads = min(_MOST_THREADS, num_cores()) if self.chunk_bytes else 0
        self._threads = ThreadPoolExecutor(max(1, self.num_threads), "leftoff-load")
        self._store_threads = ThreadPoolExecutor(max(1, min(_STORE_THREADS, self.num_threads)), "leftoff-save")

    def close(self) -> None:
        self._threads.shutdown()
        self._store_threads.shutdown()

    def fit(self, nbytes: int) -> None:
        """Makes the chunks large enough for a state of `nbytes`. To be called while nothing is transferred."""
        if 0 < self.chunk_bytes < nbytes <= _MAX_CHUNK_BYTES:
            self._allocate_chunks(nbytes)

    def _allocate_chunks(self, chunk_bytes: int) -> None:
        """Leaves the chunks as they are if no more memory may be locked."""
        made = (self._allocate(chunk_bytes) for _ in range(_NUM_CHUNKS)) if self._allocate is not None else ()
        chunks = [chunk for chunk in made if chunk is not None]
        if len(chunks) == _NUM_CHUNKS:
            self._idle: queue.SimpleQueue[Raw] = queue.SimpleQueue()
            for chunk in chunks:
                self._idle.put(chunk)
            self.chunk_bytes = chunk_bytes

    @property
    def group_bytes(self) -> int:
        """The most bytes of pages worth moving in one transfer."""
        return self.chunk_bytes or _GROUP_BYTES

    def take(self, nbytes: int) -> Buffer:
        """Memory to transfer through: a chunk, or ordinary memory where none is needed, large enough or free.

        There are few chunks, so it must be let go soon: `keep` copies what is to stay.
        """
        if 0 < nbytes <= self.chunk_bytes:
            try:
                return Chunk(self._idle.put, self._idle.get(timeout=_PATIENCE_S), nbytes)
            except queue.Empty:
                pass
        return self._arena.take(nbytes)

    def keep(self, state: Buffer, nbytes: int) -> Buffer | LateBuffer:
        """The first bytes of a state that was transferred, in ordinary memory."""
        if not isinstance(state, Chunk):
            return self._arena.fit(state, nbytes)
        view = state.view[:nbytes]
        return self.store(nbytes, lambda target: np.copyto(target, view))

    def store(self, nbytes: int, fill: Fill) -> Buffer | LateBuffer:
        """A new buffer, allocated and filled by a thread: allocating takes long while other threads touch memory."""
        if not self.num_threads:
            return self._filled(nbytes, fill)
        return LateBuffer(nbytes, self._store_threads.submit(self._filled, nbytes, fill))

    def run(self, jobs: Sequence[Job]) -> list[Future[None]]:
        """Runs jobs, which must not depend on each other, with all threads."""
        if not self.num_threads:
            _run_all(jobs)
            return []
        shares = (jobs[first :: self.num_threads] for first in range(self.num_threads))
        return [self._threads.submit(_run_all, share) for share in shares if share]

    def copy(self, target: Raw, source: Raw) -> list[Future[None]]:
        """Copies with all threads. The source must stay as it is until the futures are done."""
        starts = range(0, target.nbytes, _PIECE_BYTES)
        return self.run([partial(_copy, target, source, start) for start in starts])

    def _filled(self, nbytes: int, fill: Fill) -> Buffer:
        buffer = self._arena.take(nbytes)
        fill(buffer.view)
        return buffer


def _run_all(jobs: Sequence[Job]) -> None:
    for job in jobs:
        job()


def _copy(target: Raw, source: Raw, start: int) -> None:
    np.copyto(target[start : start + _PIECE_BYTES], source[start : start + _PIECE_BYTES])  # without the GIL


def staging_for(library: Library, arena: Arena) -> Staging:
    """Staging with page-locked chunks if the library computes on a device that needs them to transfer fast."""
    dll = library.dll
    for index in range(dll.ggml_backend_dev_count()):
        host_memory = dll.ggml_backend_dev_host_buffer_type(dll.ggml_backend_dev_get(index))
        if host_memory:
            chunk_bytes = min(_MAX_CHUNK_BYTES, max(_MIN_CHUNK_BYTES, physical_ram() // _RAM_PER_CHUNK))
            return Staging(arena, partial(_page_locked, library, host_memory), chunk_bytes)
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
    """None if no more memory may be locked."""
    handle = library.dll.ggml_backend_buft_alloc_buffer(host_memory, nbytes)
    return np.asarray(_LockedMemory(library, handle, nbytes)) if handle else None
