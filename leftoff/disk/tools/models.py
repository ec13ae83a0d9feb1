"""The model folders under one cache folder: what each holds, and removing blobs or whole folders to make room."""

import math
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

from leftoff.blobs import clock
from leftoff.blobs.blob import Blob
from leftoff.cache.capacity import Capacity, Offer, TreeLock
from leftoff.cache.policy import Limit, ValuePerByte
from leftoff.disk.errors import PROBLEMS, DamagedIndexError, FolderBusyError, FolderError, NewerFormatError
from leftoff.disk.folder import BLOBS, LAYOUT, FolderLock, ModelFolder, holder, is_locked, noted_rate
from leftoff.disk.index import FILE, Index
from leftoff.disk.picture_files import PictureFiles
from leftoff.disk.reply_store import ReplyFile

_BATCH_BYTES = 64 << 20  # are removed at a time, since each time takes a synced transaction

_Held = tuple[ModelFolder, Blob]


@dataclass(frozen=True)
class ModelUsage:
    """Size and last use of one model's folder. If it has a `problem`, its index could not be read."""

    path: Path
    fingerprint: str
    label: str
    num_blobs: int
    nbytes: int
    last_used: float
    pid: int | None  # of the process that uses it
    problem: str = ""
    oldest: float = 0.0  # use of a blob
    num_tokens: int = 0

    @property
    def name(self) -> str:
        return self.label or self.path.name

    @property
    def is_in_use(self) -> bool:
        return self.pid is not None


@dataclass(frozen=True)
class Pruned:
    """The blobs that were removed from a folder, and the bytes that are left."""

    num_blobs: int
    nbytes: int
    left_bytes: int


def models(root: Path) -> list[ModelUsage]:
    """All models, most recently used first; none if the folder cannot be read, which a store opened there reports."""
    return sorted(map(usage_of, folders(root)), key=lambda usage: usage.last_used, reverse=True)


def folders(root: Path) -> list[Path]:
    """The folders of all models."""
    try:
        return [path for path in (root / LAYOUT).iterdir() if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []


def usage_of(folder: Path) -> ModelUsage:
    """The size and age of a model's folder, and the process that has it locked."""
    pid = (holder(folder) or 0) if is_locked(folder) else None
    changed = folder.stat().st_mtime
    try:
        with closing(Index.look(folder / FILE)) as index:
            blobs, fingerprint, label = index.blobs(), index.meta("fingerprint"), index.meta("label")
    except (OSError, DamagedIndexError) as error:
        nbytes = sum(path.stat().st_size for path in (folder / BLOBS).rglob("*") if path.is_file())
        return ModelUsage(folder, "", "", 0, nbytes, changed, pid, str(error))
    last_used = min(max((blob.last_used for blob in blobs), default=changed), clock.now())  # it may have been set back
    nbytes = sum(blob.file_bytes for blob in blobs)
    oldest = min((blob.last_used for blob in blobs), default=changed)
    num_tokens = sum(blob.end - blob.start for blob in blobs if blob.is_page) or max(
        (blob.end for blob in blobs), default=0
    )
    return ModelUsage(
        folder,
        fingerprint,
        label,
        len(blobs),
        nbytes,
        last_used,
        pid,
        oldest=min(oldest, last_used),
        num_tokens=num_tokens,
    )


class ClosedFolder:
    """The folder of a model that is not open: its bytes count, and give way to blobs that are worth more.

    Its least recently used blobs go first, and of a conversation its end. What another process uses stays, and so does
    what a newer leftoff wrote.
    """

    oldest = math.inf  # stale points are looked for in RAM alone

    def __init__(self, path: Path, capacity: Capacity) -> None:
        self.path = path
        self.lock = TreeLock()
        self.reserved_bytes = 0
        self.is_kept = False  # it cannot be evicted, or is about to be opened
        self._capacity = capacity
        self._look()

    def _look(self) -> None:
        self._usage = usage_of(self.path)
        self.used_bytes = self._usage.nbytes
        self.is_kept = self._usage.is_in_use

    def offer(self, limit: Limit) -> Offer | None:
        age_s = clock.now() - self._usage.oldest
        last_used = time.monotonic() - age_s
        if self.is_kept or not self.used_bytes or last_used > min(limit.rested_since, limit.unused_since):
            return None
        chance = 1 / (1 + age_s / ValuePerByte.half_life_s)
        worth = chance * self._usage.num_tokens * noted_rate(self.path) / self.used_bytes
        return Offer(worth, True, last_used)

    def evict_one(self, limit: Limit) -> bool:
        if self._usage.problem:  # it may have passed, such as too many open files
            self._look()
        left_bytes = self.used_bytes - min(_BATCH_BYTES, int(min(limit.most_bytes, self.used_bytes)))
        if self._usage.problem:  # without its index it can only go as a whole
            left_bytes = 0
        try:
            if not left_bytes:
                self.is_kept = not remove_model(self.path)
            else:
                left_bytes = prune([self._usage], to_bytes=left_bytes, before=None).left_bytes
        except PROBLEMS:
            self.is_kept = True
        if self.is_kept:
            return False
        self._capacity.wear_by(self.used_bytes - left_bytes, time.monotonic())
        self.used_bytes = left_bytes
        if left_bytes:
            self._look()
        return True

    def forget(self, is_meant: Callable[[str], bool]) -> Pruned:
        """Deletes for good what is kept for the namespaces that are meant. Raises `PROBLEMS`: also if it is in use."""
        with self.lock:
            self._look()
            before = self._usage
            if before.problem:
                raise FolderError(f"{before.problem}: `leftoff cache clear` removes it")
            if before.is_in_use:
                raise FolderBusyError(self.path, before.pid)
            folder = ModelFolder(self.path, before.fingerprint)
            try:
                folder.open()
                folder.clear(is_meant)
                with closing(ReplyFile.open(self.path)) as replies:
                    replies.remove(is_meant)
                PictureFiles(self.path, 0).remove(is_meant)
            finally:
                folder.close()
            self._look()
            usage = self._usage
            return Pruned(before.num_blobs - usage.num_blobs, before.nbytes - usage.nbytes, usage.nbytes)


def remove_model(folder: Path) -> bool:
    """Removes a model's folder. False, and nothing touched, if a process uses it or a newer leftoff wrote it."""
    try:
        Index.look(folder / FILE).close()
    except NewerFormatError:
        return False
    except (OSError, DamagedIndexError):
        pass
    try:
        lock = FolderLock.take(folder)
    except FolderBusyError:
        return False
    try:
        shutil.rmtree(folder / BLOBS, ignore_errors=True)  # first: as long as the index is there, they are counted
        shutil.rmtree(folder)
    finally:
        lock.release()
    return True


def prune(usages: Sequence[ModelUsage], *, to_bytes: int | None, before: float | None) -> Pruned:
    """Removes blobs of some models that were last used `before` a time, and then more until `to_bytes` are left.

    Least recently used blobs go first, and of a conversation its end. Raises `FolderBusyError` and removes nothing if
    a process uses one of the folders.
    """
    with ExitStack() as open_folders:
        held: list[_Held] = []
        for usage in usages:
            folder = ModelFolder(usage.path, usage.fingerprint)
            open_folders.callback(folder.close)
            folder.open()
            held += [(folder, blob) for blob in folder.index.blobs()]
        going = _to_remove(held, to_bytes, before)
        for folder in {folder for folder, _ in going}:
            folder.remove([blob.name for of, blob in going if of is folder])
            folder.index.drop_unreachable_runs()
    nbytes = _sum(going)
    return Pruned(len(going), nbytes, _sum(held) - nbytes)


def _to_remove(held: list[_Held], to_bytes: int | None, before: float | None) -> list[_Held]:
    going = []
    left_bytes = _sum(held)
    for folder, blob in sorted(held, key=lambda pair: (pair[1].last_used, -pair[1].end)):
        is_old = before is not None and blob.last_used < before
        is_too_much = to_bytes is not None and left_bytes > to_bytes
        if is_old or is_too_much:
            going.append((folder, blob))
            left_bytes -= blob.file_bytes
    return going


def _sum(held: list[_Held]) -> int:
    return sum(blob.file_bytes for _, blob in held)
