"""The folder of a model as the medium of a blob store, and `open_folder`, which opens one there.

Only `open_folder` raises, and only if the folder must not be used: a disk that fails is opened again later.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from leftoff.blobs import clock
from leftoff.blobs.blob import Blob, Write
from leftoff.blobs.medium import PathBlobs, Use
from leftoff.blobs.path_hash import as_tokens
from leftoff.blobs.store import MediumBlobStore
from leftoff.blobs.writer import QueueLimit
from leftoff.cache.blob_store import Item
from leftoff.cache.costs import TierCosts
from leftoff.cache.report import Origin
from leftoff.cache.wear import DAY_S, RecentBytes
from leftoff.disk.errors import PROBLEMS, DamagedIndexError, FolderError, describe
from leftoff.disk.folder import ModelFolder, model_folder
from leftoff.disk.index import Content
from leftoff.disk.rebuild import rebuild_branches
from leftoff.disk.secret import keep_secret
from leftoff.engine.errors import BlobError
from leftoff.engine.memory.arena import Arena
from leftoff.machine import num_cores

logger = logging.getLogger("leftoff.disk")

QUEUE_BYTES = 512 << 20
_BATCH_BYTES = 256 << 20  # of one transaction
_SMALL_BATCH_BYTES = 64 << 20  # where the engine needs the cores that write it
_RATED_BYTES = 8 << 20  # a smaller batch says little about the disk's rate
_REMOVALS_PER_CLEANING = 256
_MIN_READERS, _MAX_READERS = 4, 16
_RETRY_S = 5.0


class FolderMedium:
    """Implements `blobs.medium.Medium` with files and an index in sqlite. Made by `open_folder`."""

    problems = PROBLEMS
    call_ms = None

    def __init__(self, root: Path, folder: ModelFolder, content: Content, daily_bytes: int | None) -> None:
        """In no 24 hours are more than `daily_bytes` written, whatever process began them. `root` has all models."""
        self._root = root
        self._folder = folder
        self._content = content
        self._read_rate = folder.files.read_rate(content.blobs)
        self._write_rate: float | None = None  # of the last large batch, synced
        self._daily_bytes = daily_bytes
        self._of_the_day = RecentBytes.parse(folder.written_lately, DAY_S)
        self._was_open = folder.is_open  # else the bytes of the day are not known yet
        self._lock = threading.Lock()  # of the bytes of the day
        self._is_damaged = False  # the index
        self._reported = ""  # the problem that was logged last, until all is well again
        self._needed_bytes = 0  # of the batch that failed last
        self._num_removed = 0

    @property
    def path(self) -> Path:
        return self._folder.path

    @property
    def bytes_per_ms(self) -> float | None:
        """Measured on what earlier processes left; else a disk that was empty reads about as fast as it writes."""
        return self._read_rate or self._write_rate

    @property
    def left_bytes(self) -> float:
        if self._daily_bytes is None:
            return math.inf
        with self._lock:
            return self._daily_bytes - self._of_the_day.total(clock.now())

    def left_paths(self) -> Iterator[PathBlobs]:
        """Blobs whose path the index has lost are removed."""
        content, self._content = self._content, Content([], [])
        unknown = {blob.name: blob for blob in content.blobs}
        for branch in rebuild_branches(content):
            for blob in branch.blobs:
                del unknown[blob.name]
            yield PathBlobs(branch.namespace, as_tokens(branch.tokens), branch.blobs)
        if unknown and self._folder.is_open:
            logger.warning("%d files of %s are of unknown tokens: removed", len(unknown), self.path)
            with suppress(*PROBLEMS):  # then the next process tries again
                self.remove([*unknown.values()])

    def read(self, blob: Blob, arena: Arena) -> Item:
        try:
            return self._folder.files.read(blob, arena)
        except (BlobError, OSError) as error:
            raise BlobError(f"{self._folder.files.path(blob.name)}: {error}") from error

    # --- called by the writer

    def write(self, writes: Sequence[Write]) -> int:
        began, nbytes = time.perf_counter(), sum(write.blob.file_bytes for write in writes)
        with self._lock:
            self._of_the_day.add(nbytes, clock.now())
            written_lately = self._of_the_day.text
        self._needed_bytes = nbytes
        self._folder.add(writes, written_lately)
        if nbytes >= _RATED_BYTES:
            self._write_rate = nbytes / (1000 * (time.perf_counter() - began))
        if self._reported:
            logger.warning("the cache in %s is written again", self.path)
            self._reported = ""
        return nbytes

    def remove(self, blobs: Sequence[Blob]) -> None:
        self._folder.remove([blob.name for blob in blobs])
        self._num_removed += len(blobs)

    def clear(self, is_meant: Callable[[str], bool]) -> None:
        self._folder.clear(is_meant)

    def note(self, uses: Sequence[Use]) -> Sequence[Blob]:
        """Writes hits to the index, and cleans that after many removals."""
        if uses:
            self._folder.index.note(uses)
        if self._num_removed >= _REMOVALS_PER_CLEANING:
            self._clean()
        return []

    def failed(self, problem: Exception) -> None:
        """Logs a problem once, and again only if it changes or comes back after all was well."""
        self._is_damaged |= isinstance(problem, DamagedIndexError)
        self._folder.close_index()
        message = describe(problem, self.path)
        if message != self._reported:
            mistake = None if isinstance(problem, PROBLEMS) else problem  # a defect of ours, not of the disk
            logger.warning("nothing is written to disk: %s", message, exc_info=mistake)
        self._reported = message

    def recover(self, written: Collection[str]) -> Collection[str]:
        self._folder.open(anew=self._is_damaged)
        keep_secret(self._root)
        if not self._was_open:
            with self._lock:
                self._of_the_day = RecentBytes.parse(self._folder.written_lately, DAY_S)
            self._was_open = True
        missing = self._folder.reconcile(written)
        self._is_damaged = False
        return missing

    def check_room(self) -> None:
        self._folder.files.check_room(self._needed_bytes)

    def close(self) -> None:
        try:
            if self._num_removed and self._folder.is_open:
                self._clean()
        except PROBLEMS as problem:
            self.failed(problem)
        self._folder.close()

    def _clean(self) -> None:
        self._num_removed = 0
        self._folder.index.drop_unreachable_runs()


def open_folder(
    root: Path,
    memory_fingerprint: str,
    arena: Arena,
    *,
    label: str = "",
    queue_bytes: int | QueueLimit = QUEUE_BYTES,
    reserve_bytes: int | None = None,
    retry_s: float = _RETRY_S,
    gives_way: bool = True,
    daily_bytes: int | None = None,
) -> MediumBlobStore[FolderMedium]:
    """Opens the folder of a model; `FolderError` if another process uses it, or a newer leftoff wrote it.

    If the disk fails, the folder is opened later. `label` is the model's name for people; `reserve_bytes` are left free
    on the disk (None: 256 MiB or a hundredth, whichever is more). With `gives_way`, writing waits while the engine is
    busy. At most `daily_bytes` are written in 24 hours.
    """
    folder = ModelFolder(model_folder(root, memory_fingerprint), memory_fingerprint, label, reserve_bytes)
    problem: Exception | None = None
    try:
        content = _opened(folder)
    except FolderError:
        folder.close()
        raise
    except PROBLEMS as error:
        problem, content = error, folder.peek()
    return MediumBlobStore(
        Origin.DISK,
        FolderMedium(root, folder, content, daily_bytes),
        arena,
        costs=TierCosts(),
        num_readers=min(_MAX_READERS, max(_MIN_READERS, num_cores())),
        queue_bytes=queue_bytes,
        batch_bytes=_SMALL_BATCH_BYTES if gives_way else _BATCH_BYTES,
        retry_s=retry_s,
        gives_way=gives_way,
        problem=problem,
    )


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
