"""The folders of all models under one cache folder: what each holds, and whole ones go when there are too many."""

import shutil
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from leftoff.disk import clock
from leftoff.disk.blob import Blob
from leftoff.disk.errors import DamagedIndexError, FolderBusyError, NewerFormatError
from leftoff.disk.folder import BLOBS, LAYOUT
from leftoff.disk.index import FILE, Index
from leftoff.disk.lock import FolderLock, holder, is_locked


@dataclass(frozen=True)
class ModelUsage:
    """What the folder of one model holds. Without a `problem` its index was read."""

    path: Path
    fingerprint: str
    label: str
    num_blobs: int
    nbytes: int
    last_used: float
    pid: int | None  # of the process that uses it
    problem: str = ""

    @property
    def name(self) -> str:
        return self.label or self.path.name

    @property
    def is_in_use(self) -> bool:
        return self.pid is not None


def models(root: Path) -> list[ModelUsage]:
    """Of all models, the one used last first."""
    return sorted(map(usage_of, _folders(root)), key=lambda usage: usage.last_used, reverse=True)


def usage_of(folder: Path) -> ModelUsage:
    pid = (holder(folder) or 0) if is_locked(folder) else None
    try:
        with closing(Index.look(folder / FILE)) as index:
            blobs, fingerprint, label = index.blobs(), index.meta("fingerprint"), index.meta("label")
    except (OSError, DamagedIndexError) as error:
        nbytes, last_used = _measured(folder)
        return ModelUsage(folder, "", "", 0, nbytes, last_used, pid, str(error))
    return ModelUsage(folder, fingerprint, label, len(blobs), _sum(blobs), _last_used(blobs, folder), pid)


def make_room_among_models(root: Path, own: Path, budget_bytes: int) -> int:
    """Removes the folders of other models, those first that were not used for longest, until all fit in the budget.

    Folders in use stay, and so do those of a newer leftoff. Returns the bytes of the others that are left.
    """
    every = models(root)
    others = [usage for usage in every if usage.path != own]
    left = sum(usage.nbytes for usage in others)
    allowed = budget_bytes - sum(usage.nbytes for usage in every if usage.path == own)
    for usage in reversed(others):
        if left > allowed and not usage.is_in_use and remove_model(usage.path):
            left -= usage.nbytes
    return left


def remove_model(folder: Path) -> bool:
    """False if another process uses it or a newer leftoff wrote it: then nothing was touched."""
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
        shutil.rmtree(folder / BLOBS, ignore_errors=True)  # first: the index counts what is left of them
        shutil.rmtree(folder)
    finally:
        lock.release()
    return True


def _folders(root: Path) -> list[Path]:
    """None where nothing may be looked at: whoever writes there says why it cannot."""
    try:
        return [path for path in (root / LAYOUT).iterdir() if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []


def _sum(blobs: list[Blob]) -> int:
    return sum(blob.file_bytes for blob in blobs)


def _last_used(blobs: list[Blob], folder: Path) -> float:
    latest = max((blob.last_used for blob in blobs), default=folder.stat().st_mtime)
    return min(latest, clock.now())  # the clock may have been set back since


def _measured(folder: Path) -> tuple[int, float]:
    stats = [path.stat() for path in (folder / BLOBS).rglob("*") if path.is_file()]
    return sum(stat.st_size for stat in stats), folder.stat().st_mtime
