"""Pages and snapshots in files: implements `leftoff.cache.blob_store.BlobStore`.

    engine's thread: put, remove ──> entry table ──> writer's queue ──> writer's thread ──> files, then index
    reader threads: get <── files, verified, in buffers of the arena

Only `open` raises, and only if the folder must not be used. A failing disk raises nothing in the engine's thread.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import numpy as np

from leftoff.cache.blob_store import LOWEST, Item, Rank, Record, StoredPath
from leftoff.cache.costs import TierCosts
from leftoff.cache.report import Origin
from leftoff.disk.blob import Blob, Write
from leftoff.disk.entries import Entry, EntryTable
from leftoff.disk.errors import PROBLEMS, DamagedIndexError, FolderError
from leftoff.disk.folder import ModelFolder, model_folder
from leftoff.disk.index import Content
from leftoff.disk.path_hash import HashedPath
from leftoff.disk.rebuild import rebuild_branches
from leftoff.disk.writer import Writer
from leftoff.engine.errors import BlobError
from leftoff.engine.memory.arena import Arena
from leftoff.engine.seal import SEAL_BYTES
from leftoff.machine import num_cores
from leftoff.types import Tokens

logger = logging.getLogger("leftoff.disk")

QUEUE_BYTES = 512 << 20
_LEAST_READERS, _MOST_READERS = 4, 16
_RETRY_S = 5.0


class FileBlobStore:
    """Blobs of one model on disk; made by `open`. Putting an item that is stored already returns its record."""

    def __init__(
        self,
        folder: ModelFolder,
        arena: Arena,
        content: Content,
        *,
        queue_bytes: int,
        retry_s: float,
        gives_way: bool,
        daily_bytes: int | None,
    ) -> None:
        self._folder = folder
        self._arena = arena
        self._content = content
        self.costs = TierCosts()
        self._table = EntryTable(content.blobs, self)
        self._writer = Writer(
            *(folder, self._table),
            queue_bytes=queue_bytes,
            retry_s=retry_s,
            gives_way=gives_way,
            daily_bytes=daily_bytes,
        )
        self.hold_back = self._writer.hold_back  # of `BlobStore`, without one more hop
        num_readers = min(_MOST_READERS, max(_LEAST_READERS, num_cores()))
        self._readers = ThreadPoolExecutor(num_readers, thread_name_prefix="leftoff-disk-reader")
        self._read_rate = folder.files.read_rate(content.blobs)
        self._path = HashedPath("", np.empty(0, np.int32))  # of the item that was put last
        self._has_reported_damage = False

    @classmethod
    def open(
        cls,
        root: Path,
        memory_fingerprint: str,
        arena: Arena,
        *,
        label: str = "",
        queue_bytes: int = QUEUE_BYTES,
        reserve_bytes: int | None = None,
        retry_s: float = _RETRY_S,
        gives_way: bool = True,
        daily_bytes: int | None = None,
    ) -> "FileBlobStore":
        """Opens the folder of a model; `FolderError` if another process uses it, or a newer leftoff wrote it.

        If the disk fails, the writer opens the folder later. `label` is the model's name for people; `reserve_bytes`
        are left free on the disk (None: 256 MiB or a hundredth, whichever is more). With `gives_way`, writing waits
        while the engine is busy. At most `daily_bytes` are written in 24 hours.
        """
        path = model_folder(root, memory_fingerprint)
        folder = ModelFolder(path, memory_fingerprint, label, reserve_bytes)
        problem: Exception | None = None
        try:
            content = _opened(folder)
        except FolderError:
            folder.close()
            raise
        except PROBLEMS as error:
            problem, content = error, folder.peek()
        store = cls(
            *(folder, arena, content),
            queue_bytes=queue_bytes,
            retry_s=retry_s,
            gives_way=gives_way,
            daily_bytes=daily_bytes,
        )
        store._writer.start(problem)
        return store

    origin = Origin.DISK
    shared = None
    call_ms = None

    @property
    def path(self) -> Path:
        return self._folder.path

    @property
    def num_waiting(self) -> int:
        return self._writer.num_waiting

    @property
    def overhead_bytes(self) -> int:
        return SEAL_BYTES

    @property
    def bytes_per_ms(self) -> float | None:
        """Measured on what earlier processes left; else a disk that was empty reads about as fast as it writes."""
        return self._read_rate or self._writer.bytes_per_ms

    @property
    def written_bytes(self) -> int:
        return self._writer.written_bytes

    @property
    def left_bytes(self) -> float:
        return self._writer.day_left_bytes

    def stored_paths(self) -> Iterator[StoredPath]:
        recalled: set[str] = set()
        content, self._content = self._content, Content([], [])
        for branch in rebuild_branches(content):
            records = self._table.hand_out([blob.name for blob in branch.blobs])
            recalled.update(records)
            if records:
                yield branch.stored_path(records)
        self._forget([blob.name for blob in content.blobs if blob.name not in recalled])

    def put(self, item: Item, namespace: str, tokens: Tokens, rank: Rank = LOWEST) -> Record | None:
        self._path = self._path.reused_for(namespace, tokens)
        blob = Blob.of(item, self._path)
        known = self._table.find(blob.name)
        if known is not None:
            self._writer.promote([known], rank)
            return known.record
        if not self._writer.has_room(blob.file_bytes, rank):
            return None
        entry = self._table.add(Write(blob, item, self._path))
        self._writer.put(entry, rank)
        return entry.record

    def promote(self, records: Iterable[Record], rank: Rank) -> None:
        self._writer.promote(self._table.find_all(record.name for record in records), rank)

    def is_waiting(self, record: Record) -> bool:
        entry = self._table.find(record.name)
        return entry is not None and entry.write is not None

    def get(self, records: Sequence[Record]) -> list[Future[Item]]:
        largest_first = sorted(records, key=lambda record: -record.nbytes)  # else the last of them is waited for alone
        futures = {record: self._get(record) for record in largest_first}
        return [futures[record] for record in records]

    def release(self, record: Record) -> None:
        self.remove(record)

    def remove(self, record: Record) -> None:
        entry = self._table.drop(record)
        if entry is not None:
            self._writer.remove([entry])

    def record_hits(self, records: Iterable[Record]) -> None:
        self._writer.count_hits(record.name for record in records)

    def take_lost(self) -> list[Record]:
        return self._table.take_lost()

    def flush(self, timeout_s: float) -> bool:
        return self._writer.flush(timeout_s)

    def close(self, timeout_s: float) -> None:
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._writer.stop(timeout_s)

    def _get(self, record: Record) -> Future[Item]:
        entry = self._table.find(record.name)
        write = entry.write if entry is not None else None
        if entry is not None and write is None:
            return self._readers.submit(self._read, entry)
        answer: Future[Item] = Future()
        if write is None:
            answer.set_exception(BlobError(f"{record.name} is not stored any more"))
        else:
            answer.set_result(write.item)
        return answer

    def _read(self, entry: Entry) -> Item:
        try:
            return self._folder.files.read(entry.blob, self._arena)
        except (BlobError, OSError) as error:
            self._drop_damaged(entry, error)
            raise BlobError(f"{self._folder.files.path(entry.name)}: {error}") from error

    def _drop_damaged(self, entry: Entry, error: Exception) -> None:
        lost = self._table.lose([entry])
        self._writer.remove(lost)
        if lost and not self._has_reported_damage:
            self._has_reported_damage = True
            path = self._folder.files.path(entry.name)
            logger.warning("%s is lost and will be computed again (%s): `leftoff cache verify` checks all", path, error)

    def _forget(self, names: Sequence[str]) -> None:
        """Removes blobs whose path the index has lost."""
        dropped = [entry for entry in self._table.find_all(names) if self._table.drop(entry.record)]
        if dropped:
            logger.warning("%d files of %s are of unknown tokens: removed", len(dropped), self.path)
            self._writer.remove(dropped)


def _opened(folder: ModelFolder) -> Content:
    """Opens a folder and removes what does not belong there; returns its content."""
    broken = folder.open()
    try:
        content = folder.index.content()
    except DamagedIndexError:
        broken = folder.open(anew=True)
        content = folder.index.content()
    if broken is not None:
        logger.warning(
            "the index in %s was damaged: it is now %s, and the cache begins empty", folder.path, broken.name
        )
    missing = folder.reconcile({blob.name for blob in content.blobs})
    return Content([blob for blob in content.blobs if blob.name not in missing], content.runs)
