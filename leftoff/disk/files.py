"""Blobs as files: written whole or not at all, and verified whenever they are read.

The first two letters of a name are a folder: some file systems are slow with ten thousand files in one.
"""

import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from blake3 import blake3

from leftoff.blobs.blob import Blob, Write
from leftoff.cache.blob_store import Item
from leftoff.disk.errors import FolderError, NoRoomLeftError, describe
from leftoff.engine.memory.arena import Arena, view_of
from leftoff.engine.seal import seal, unseal
from leftoff.machine import disk_space, num_cores
from leftoff.units import show_bytes

FOLDER_MODE, FILE_MODE = 0o700, 0o600
UNFINISHED = ".new"
_RESERVE_BYTES = 256 << 20
_RESERVE_PART = 0.01
# Files synced at the same time: the file system joins the writes of its journal, and is ten times as fast.
_NUM_SYNCS = 8
_NUM_PROBED = 4  # files that are read to measure the disk
_PROBE_BYTES = 4 << 20  # of each
_PROBE_S = 0.05
_MIN_PROBE_BYTES = 1 << 18


class BlobFiles:
    """The blob files of one model. Any number of threads may read."""

    def __init__(self, folder: Path, fingerprint: str, reserve_bytes: int | None = None) -> None:
        self._folder = folder
        self._fingerprint = fingerprint
        self.reserve_bytes = reserve_bytes
        # half of the cores compute checksums, so that writing is limited by the disk and the engine keeps its own
        self._cores = threading.BoundedSemaphore(max(1, min(_NUM_SYNCS, num_cores() // 2)))

    def path(self, name: str) -> Path:
        return self._folder / name[:2] / name

    def present(self) -> set[str]:
        """Names of all blobs that have a file."""
        return {file.name for file in self._files() if file.path == str(self.path(file.name))}

    def keep_only(self, names: Collection[str]) -> None:
        """Removes all other files, also unfinished ones."""
        paths = {str(self.path(name)) for name in names}
        for file in self._files():
            if file.path not in paths:
                Path(file).unlink(missing_ok=True)

    def write(self, writes: Sequence[Write]) -> None:
        """Writes and syncs all blobs, or raises; when it returns they survive a loss of power."""
        self.check_room(sum(write.blob.file_bytes for write in writes))
        paths = [self.path(write.blob.name + UNFINISHED) for write in writes]
        try:
            _side_by_side(self._write_synced, writes, paths)
            for write, path in zip(writes, paths, strict=True):
                path.replace(self.path(write.blob.name))
        finally:
            for path in paths:  # those that were not renamed
                with suppress(OSError):
                    path.unlink(missing_ok=True)
        _side_by_side(_sync_folder, {path.parent for path in paths})

    def read(self, blob: Blob, arena: Arena) -> Item:
        """Reads a blob into the arena; `BlobError` or `OSError` if it is not what was written."""
        with self.path(blob.name).open("rb", buffering=0) as file:
            item = unseal(file, os.fstat(file.fileno()).st_size, self._fingerprint, arena, blob.tag)
        blob.check(item)
        return item

    def read_rate(self, blobs: Sequence[Blob]) -> float | None:
        """Bytes per millisecond, measured in a moment on the blobs used last; None if there is too little to read."""
        latest = sorted(blobs, key=lambda blob: blob.last_used, reverse=True)[:_NUM_PROBED]
        began = time.perf_counter()
        with ThreadPoolExecutor(_NUM_PROBED) as pool:
            nbytes = sum(pool.map(partial(self._read_some, until=began + _PROBE_S), latest))
        elapsed_ms = 1000 * (time.perf_counter() - began)
        return nbytes / elapsed_ms if nbytes >= _MIN_PROBE_BYTES else None

    def remove(self, names: Collection[str]) -> None:
        for name in names:
            self.path(name).unlink(missing_ok=True)

    def _files(self) -> Iterator["os.DirEntry[str]"]:
        for folder in os.scandir(self._folder):
            if folder.is_dir(follow_symlinks=False):
                yield from (file for file in os.scandir(folder) if file.is_file(follow_symlinks=False))

    def _write_synced(self, write: Write, path: Path) -> None:
        fd = _create(path)
        try:
            with self._cores:
                header = seal(write.item, self._fingerprint, write.blob.tag)
                _write_all(fd, [memoryview(header), view_of(write.item.data).data])
            os.fsync(fd)
        finally:
            os.close(fd)

    def _read_some(self, blob: Blob, until: float) -> int:
        """Reads and hashes part of a file, as far as it comes in time."""
        chunk, nbytes, hasher = bytearray(_PROBE_BYTES // 8), 0, blake3()
        with suppress(OSError), self.path(blob.name).open("rb", buffering=0) as file:
            while nbytes < _PROBE_BYTES and (count := file.readinto(chunk)):
                hasher.update(memoryview(chunk)[:count])
                nbytes += count
                if time.perf_counter() > until:
                    break
        return nbytes

    def check_room(self, nbytes: int) -> None:
        """Raises ENOSPC if writing `nbytes` would use the space that is reserved for other programs."""
        disk = os.statvfs(self._folder)
        free, reserve = disk.f_bavail * disk.f_frsize, self.reserve_bytes
        if reserve is None:
            reserve = reserve_of(disk.f_blocks * disk.f_frsize)
        if free < nbytes + reserve:
            raise NoRoomLeftError(self._folder, show_bytes(reserve))


def room_bytes(folder: Path) -> int:
    """Bytes that may be written to the disk where a folder is, or would be made; 0 if it cannot be asked."""
    disk = disk_space(folder)
    return max(0, disk.free_bytes - reserve_of(disk.total_bytes))


def reserve_of(nbytes: int) -> int:
    """How much of a disk of so many bytes is left to other programs."""
    return max(_RESERVE_BYTES, int(_RESERVE_PART * nbytes))


def make_folder(path: Path) -> None:
    """Makes a folder and its parents, accessible to the user alone."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(FOLDER_MODE, exist_ok=True)


def check_own(folder: Path) -> None:
    """Refuses a folder that is a link, or that others may write to, because files in it are removed by name.

    Root may use anybody's folder: in a container it often belongs to the user outside.
    """
    found = folder.lstat()
    if stat.S_ISLNK(found.st_mode):
        raise FolderError(f"{folder} is a link to {folder.readlink()}: give that folder's own path as --cache-dir")
    if os.geteuid() not in (0, found.st_uid):
        raise FolderError(f"{folder} belongs to another user ({found.st_uid}): give another --cache-dir")
    if found.st_mode & stat.S_IWOTH:
        raise FolderError(f"{folder} can be written by everybody: chmod o-w {folder}, or give another --cache-dir")


def problem_of(folder: Path) -> str:
    """Why nothing can be written to a folder; empty if it can."""
    try:
        make_folder(folder)
        with TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return describe(error, folder)


def _create(path: Path) -> int:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    try:
        return os.open(path, flags, FILE_MODE)
    except FileNotFoundError:
        path.parent.mkdir(FOLDER_MODE, exist_ok=True)  # not its parents: if they are gone, so is everything else
        _sync_folder(path.parent.parent)
        return os.open(path, flags, FILE_MODE)


def _write_all(fd: int, views: list[memoryview]) -> None:
    while views:
        count = os.writev(fd, views)
        while views and count >= views[0].nbytes:
            count -= views.pop(0).nbytes
        if views:
            views[0] = views[0][count:]


def _sync_folder(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _side_by_side(sync: Callable[..., None], *arguments: Collection[Any]) -> None:
    with ThreadPoolExecutor(_NUM_SYNCS) as pool:
        for _ in pool.map(sync, *arguments):  # raises what it has raised
            pass


def read_small(path: Path, limit_bytes: int = -1) -> bytes:
    """Reads a file that `write_small` wrote. `OSError` if it is none, or a link."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        return file.read(limit_bytes)


def write_small(path: Path, content: bytes) -> None:
    """Writes a file whole or not at all; after a loss of power perhaps empty, which its reader must notice."""
    unfinished = path.with_name(f"{secrets.token_hex(8)}{UNFINISHED}")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "wb") as file:
            file.write(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
