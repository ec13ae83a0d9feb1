"""Pages and snapshots in files: implements `leftoff.cache.blob_store.BlobStore`.

    engine's thread: put, remove ──> ledger ──> queue ──> writer's thread ──> files, then index
    readers' threads: <── files, verified into memory of the arena

Nothing that happens to the disk raises in the engine's thread but `open`, and that only where the folder is another's.
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from leftoff.cache.blob_store import Item, Record, StoredPath
from leftoff.disk.blob import Blob
from leftoff.disk.entries import Entry, Ledger
from leftoff.disk.errors import DamagedIndexError, FolderError
from leftoff.disk.folder import ModelFolder, model_folder
from leftoff.disk.index import Content
from leftoff.disk.problems import PROBLEMS
from leftoff.disk.rebuild import Recall
from leftoff.disk.writer import Writer
from leftoff.engine.errors import BlobError
from leftoff.engine.memory.arena import Arena
from leftoff.engine.seal import SEAL_BYTES
from leftoff.types import Tokens

logger = logging.getLogger("leftoff.disk")

QUEUE_BYTES = 512 << 20
_NUM_READERS = 4
_RETRY_S = 5.0


class FileBlobStore:
    """Made by `open`. Of one name there is one record: putting an item again returns the record it has."""

    def __init__(
        self, folder: ModelFolder, arena: Arena, content: Content, *, queue_bytes: int, retry_s: float
    ) -> None:
        self._folder = folder
        self._arena = arena
        self._content = content
        self._ledger = Ledger(content.blobs)
        self._writer = Writer(folder, self._ledger, queue_bytes=queue_bytes, retry_s=retry_s)
        self._readers = ThreadPoolExecutor(_NUM_READERS, thread_name_prefix="leftoff-disk-reader")
        self._has_met_damage = False

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
    ) -> "FileBlobStore":
        """Raises `FolderError` if another process uses the folder, or a newer leftoff wrote it.

        A folder that fails is opened when that works again. `label` tells people which model it is of; `reserve_bytes`
        are left free on the disk (None: 256 MiB or a hundredth, whichever is more).
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
        shelf = cls(folder, arena, content, queue_bytes=queue_bytes, retry_s=retry_s)
        shelf._writer.start(problem)
        return shelf

    @property
    def path(self) -> Path:
        return self._folder.path

    @property
    def overhead_bytes(self) -> int:
        return SEAL_BYTES

    def recall(self) -> Iterator[StoredPath]:
        recalled: set[str] = set()
        content, self._content = self._content, Content([], [])
        for path in Recall(content).paths():
            records = self._ledger.hand_out([blob.name for blob in path.blobs])
            recalled.update(records)
            if records:
                yield path.kept(records)
        self._forget([blob.name for blob in content.blobs if blob.name not in recalled])

    def put(self, item: Item, namespace: str, tokens: Tokens) -> Record | None:
        blob = Blob.of(item, namespace, tokens)
        known = self._ledger.find(blob.name)
        if known is not None:
            return known.record
        if not self._writer.takes(blob.file_bytes):
            return None
        entry = self._ledger.add(blob, item)
        self._writer.put(entry, tokens)
        return entry.record

    def get(self, records: Sequence[Record]) -> list[Future[Item]]:
        return [self._get(record) for record in records]

    def remove(self, record: Record) -> None:
        entry = self._ledger.drop(record)
        if entry is not None:
            self._writer.remove([entry])

    def used(self, records: Iterable[Record]) -> None:
        self._writer.use([record.name for record in records])

    def hold_back(self, *, is_busy: bool) -> None:
        self._writer.hold_back(is_busy=is_busy)

    def settle(self) -> list[Record]:
        return self._ledger.take_lost()

    def flush(self, timeout_s: float) -> bool:
        return self._writer.flush(timeout_s)

    def close(self, timeout_s: float) -> None:
        self._readers.shutdown(wait=False, cancel_futures=True)
        self._writer.stop(timeout_s)

    def _get(self, record: Record) -> Future[Item]:
        entry = self._ledger.find(record.name)
        item = entry.item if entry is not None else None
        if entry is not None and item is None:
            return self._readers.submit(self._read, entry)
        answer: Future[Item] = Future()
        if item is None:
            answer.set_exception(BlobError(f"{record.name} is not on the shelf any more"))
        else:
            answer.set_result(item)
        return answer

    def _read(self, entry: Entry) -> Item:
        try:
            return self._folder.files.read(entry.blob, self._arena)
        except (BlobError, OSError) as error:
            self._meet_damage(entry, error)
            raise BlobError(f"{self._folder.files.path(entry.name)}: {error}") from error

    def _meet_damage(self, entry: Entry, error: Exception) -> None:
        lost = self._ledger.lose([entry])
        self._writer.remove(lost)
        if lost and not self._has_met_damage:
            self._has_met_damage = True
            path = self._folder.files.path(entry.name)
            logger.warning("%s is lost and will be computed again (%s): `leftoff cache verify` checks all", path, error)

    def _forget(self, names: Sequence[str]) -> None:
        """What the index knows, but not on which tokens it lies."""
        dropped = [entry for entry in self._ledger.find_all(names) if self._ledger.drop(entry.record)]
        if dropped:
            logger.warning("%d files of %s are of unknown tokens: removed", len(dropped), self.path)
            self._writer.remove(dropped)


def _opened(folder: ModelFolder) -> Content:
    """What the folder holds, after all that does not belong there is gone."""
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
