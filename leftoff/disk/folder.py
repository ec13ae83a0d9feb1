"""The folder of one model: its lock, its index, and its blobs.

    <cache dir>/v1/<fingerprint>/lock, index.sqlite, replies.sqlite, model, content, blobs/ab/<name>

A newer layout would be v2, beside it. A file is written before its row and removed after it, so that a crash leaves at
most files without a row; these are removed when the folder is opened. One process at a time uses a folder.
"""

import fcntl
import os
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from pathlib import Path

from leftoff.blobs import clock
from leftoff.blobs.blob import Write
from leftoff.disk.errors import DamagedIndexError, FolderBusyError, FullDiskError
from leftoff.disk.files import FILE_MODE, BlobFiles, check_own, make_folder
from leftoff.disk.index import FILE, WRITTEN, Content, Index
from leftoff.engine.fingerprint import file_fingerprint, model_parts

LAYOUT = "v1"
BLOBS = "blobs"
_FINGERPRINT_DIGITS = 16
_BROKEN = "index.broken-"
_KEPT_BROKEN = 3
_LOCK_FILE = "lock"
_MODEL = "model"
_CONTENT = "content"  # of the model file: its bytes and its hash
_RATE = "ms_per_token"
_REWRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
_LOCK_WAIT_S = 0.5  # another process may just be looking, or ending
_LOCK_STEP_S = 0.02


def model_folder(root: Path, fingerprint: str) -> Path:
    """The folder of a model under a cache folder, by its fingerprint."""
    return root / LAYOUT / fingerprint[:_FINGERPRINT_DIGITS]


def note_model(folder: Path, model: Path, fingerprint: str, ms_per_token: float) -> None:
    """Notes in its folder which file the model is, for tools that show the text of tokens, and how fast it reads."""
    notes = {_MODEL: str(model.resolve()), _RATE: str(ms_per_token)}
    with suppress(OSError):
        notes[_CONTENT] = f"{_num_bytes(model)} {fingerprint}"
    for name, text in notes.items():
        with suppress(OSError), os.fdopen(os.open(folder / name, _REWRITE, FILE_MODE), "w") as file:
            file.write(text)


def noted_model(folder: Path) -> Path | None:
    """The model file that a folder was used with last; None if it is no longer there."""
    with suppress(OSError, ValueError):
        model = Path((folder / _MODEL).read_text())
        return model if model.is_file() else None
    return None


def is_of_model(folder: Path, model: Path) -> bool:
    """Whether a folder was used with this model file, or with one of the same content: it may be moved or copied."""
    with suppress(OSError, ValueError):
        if Path((folder / _MODEL).read_text()) == model.resolve():
            return True
        num_bytes, fingerprint = (folder / _CONTENT).read_text().split()
        return int(num_bytes) == _num_bytes(model) and fingerprint == file_fingerprint(model)
    return False


def _num_bytes(model: Path) -> int:
    return sum(part.stat().st_size for part in model_parts(model))


def noted_rate(folder: Path) -> float:
    """The milliseconds in which the model reads a token; one if that is not known."""
    with suppress(OSError, ValueError):
        return float((folder / _RATE).read_text())
    return 1.0


class FolderLock:
    """An exclusive lock, from `take` until `release` or the end of the process, however it ends."""

    def __init__(self, folder: Path, fd: int) -> None:
        self._path = folder / _LOCK_FILE
        self._fd = fd

    @classmethod
    def take(cls, folder: Path) -> "FolderLock":
        """Raises `FolderBusyError` if another process holds it."""
        deadline = time.monotonic() + _LOCK_WAIT_S
        while True:
            fd = _open_lock(folder / _LOCK_FILE)
            lock = cls(folder, fd)
            if _try_lock(fd, fcntl.LOCK_EX) and lock.is_current():
                break
            os.close(fd)
            if time.monotonic() > deadline:
                raise FolderBusyError(folder, holder(folder))
            time.sleep(_LOCK_STEP_S)
        with suppress(OSError):  # a read-only folder can be locked all the same
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        return lock

    def is_current(self) -> bool:
        """False after the folder was removed: one made again in its place has another lock file."""
        try:
            return os.path.samestat(os.fstat(self._fd), self._path.stat())
        except OSError:
            return False

    def release(self) -> None:
        os.close(self._fd)


def is_locked(folder: Path) -> bool:
    """Whether a process has the folder locked now."""
    try:
        fd = os.open(folder / _LOCK_FILE, os.O_RDONLY)
    except OSError:
        return False
    try:
        return not _try_lock(fd, fcntl.LOCK_SH)
    finally:
        os.close(fd)


def holder(folder: Path) -> int | None:
    """The process that holds the lock, or held it last."""
    try:
        return int((folder / _LOCK_FILE).read_text())
    except (OSError, ValueError):
        return None


def _open_lock(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError:
        with suppress(OSError):
            return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        raise


def _try_lock(fd: int, how: int) -> bool:
    try:
        fcntl.flock(fd, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class ModelFolder:
    """Keeps index and files in step. Blocks, and raises any of `PROBLEMS`. Used by one thread at a time."""

    def __init__(self, path: Path, fingerprint: str, label: str = "", reserve_bytes: int | None = None) -> None:
        self.path = path
        self.files = BlobFiles(self.path / BLOBS, fingerprint, reserve_bytes)
        self._fingerprint = fingerprint
        self._label = label
        self._lock: FolderLock | None = None
        self._index: Index | None = None
        self._identity: os.stat_result | None = None

    def open(self, *, anew: bool = False) -> Path | None:
        """Locks the folder and opens its index. If that is damaged, or with `anew`, renames it and returns its path."""
        make_folder(self.path / BLOBS)
        check_own(self.path)
        check_own(self.path / BLOBS)
        if self._lock is None or not self._lock.is_current():
            self._let_go()
            self._lock = FolderLock.take(self.path)
        broken = self._set_aside() if anew else None
        try:
            self._index = self._open_index()
        except DamagedIndexError:
            broken = self._set_aside()
            self._index = self._open_index()
        self._index.set_back(clock.now())
        self._identity = (self.path / FILE).stat()
        return broken

    def close(self) -> None:
        self.close_index()
        self._let_go()

    def close_index(self) -> None:
        if self._index is not None:
            self._index.close()
            self._index = None

    def peek(self) -> Content:
        """The content of a folder that could not be opened, as far as it can be read."""
        try:
            with closing(Index.look(self.path / FILE)) as index:
                return index.content()
        except (OSError, DamagedIndexError):
            return Content([], [])

    @property
    def is_open(self) -> bool:
        return self._index is not None

    @property
    def index(self) -> Index:
        assert self._index is not None, f"{self.path} is not open"
        return self._index

    @property
    def written_lately(self) -> str:
        """The bytes written in the last hours, as `add` was told of them; empty if the folder is not open."""
        return self._index.meta(WRITTEN) if self._index is not None else ""

    def add(self, writes: Sequence[Write], written_lately: str = "") -> None:
        """Writes files, then rows. When it returns they survive a loss of power."""
        self._check_identity()
        self.files.write(writes)
        self.index.add(writes, written_lately)

    def remove(self, names: Collection[str]) -> None:
        """Removes rows, then files; where the disk is too full for the former, files first, which makes room."""
        try:
            self.index.remove(names)
        except FullDiskError:
            self.files.remove(names)
            self.index.remove(names)
        self.files.remove(names)

    def clear(self, is_meant: Callable[[str], bool]) -> None:
        """Deletes namespaces for good. Of indexes that were set aside nobody can tell whose tokens are in them."""
        self.remove(self.index.names_in(is_meant))
        self.index.drop_unreachable_runs()
        self.index.erase()
        for broken in self.path.glob(f"{_BROKEN}*"):
            broken.unlink(missing_ok=True)

    def reconcile(self, wanted: Collection[str]) -> set[str]:
        """Removes all blobs but those with a wanted name; returns the wanted names that have no blob here."""
        rows = self.index.names()
        here = rows & self.files.present() & {*wanted}
        if rows - here:
            self.index.remove(rows - here)
            self.index.drop_unreachable_runs()
        self.files.keep_only(here)
        return {*wanted} - here

    def _open_index(self) -> Index:
        return Index.open(self.path / FILE, self._fingerprint, self._label)

    def _check_identity(self) -> None:
        """sqlite keeps writing to an index file that was removed, and all of it would be lost."""
        assert self._identity is not None
        if not os.path.samestat(self._identity, (self.path / FILE).stat()):
            raise FileNotFoundError(f"{self.path / FILE} was replaced")

    def _set_aside(self) -> Path:
        """Renames the index, so that the damage can be looked into. At most three such files are kept."""
        self.close_index()
        targets = [self.path / f"{_BROKEN}{number}" for number in range(1, _KEPT_BROKEN + 1)]
        target = next((path for path in targets if not path.exists()), targets[-1])
        for suffix in ("", "-wal", "-shm"):
            with suppress(FileNotFoundError):
                (self.path / (FILE + suffix)).replace(f"{target}{suffix}")
        return target

    def _let_go(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
