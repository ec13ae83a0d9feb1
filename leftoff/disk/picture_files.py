"""Embeddings of pictures in the folder of a model, one file each: after a restart nothing is encoded again.

A file's name begins with its namespace, in which `-` stands for `/`; its time is that of its last use. Of too many
bytes, those used least recently go first.
"""

import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from blake3 import blake3

from leftoff.disk.errors import FirstProblem
from leftoff.disk.files import UNFINISHED, make_folder, read_small, write_small

logger = logging.getLogger("leftoff.disk")

FOLDER = "pictures"
_SUFFIX = ".picture"
_CHECKSUM_BYTES = 32


class PictureFiles:
    """Implements `engine.vision.kept.PictureMedium`. Any thread may call it. A failing disk raises nothing."""

    def __init__(self, folder: Path, limit_bytes: int, count: Callable[[int], None] = lambda _: None) -> None:
        """`count` is told how many bytes there are."""
        self._folder = folder / FOLDER
        self._limit_bytes = limit_bytes
        self._count = count
        self._lock = threading.Lock()
        self._problem = FirstProblem("pictures are not kept", self._folder)
        self._counted()

    def get(self, namespace: str, key: bytes) -> bytes | None:
        """None if there is no such file, or if it is damaged."""
        path = self._path(namespace, key)
        try:
            kept = read_small(path)
            content = kept[_CHECKSUM_BYTES:]
            if kept[:_CHECKSUM_BYTES] != _checksum(key, content):
                logger.warning("%s is damaged: its picture is encoded again", path)
                with self._lock:
                    path.unlink(missing_ok=True)
                    self._counted()
                return None
            os.utime(path)
            return content
        except FileNotFoundError:
            return None
        except OSError as error:
            self._problem.tell(error)
            return None

    def put(self, namespace: str, key: bytes, content: bytes) -> None:
        """Whole or not at all; what a loss of power leaves has a wrong checksum."""
        size = len(content) + _CHECKSUM_BYTES
        if size > self._limit_bytes:
            return
        try:
            with self._lock:
                make_folder(self._folder)
                self._make_room(size)
                write_small(self._path(namespace, key), _checksum(key, content) + content)
                self._counted()
        except OSError as error:
            self._problem.tell(error)

    def remove(self, is_meant: Callable[[str], bool]) -> None:
        """Deletes the pictures of the namespaces that are meant. Raises `OSError`."""
        if not self._folder.is_dir():
            return
        with self._lock:
            for path in self._folder.iterdir():
                namespace = path.name.partition(".")[0].replace("-", "/")
                if path.suffix == UNFINISHED or is_meant(namespace):
                    path.unlink(missing_ok=True)
            self._counted()

    def _make_room(self, size: int) -> None:
        num_bytes = self._counted()
        for path in sorted(self._folder.iterdir(), key=lambda path: path.stat().st_mtime_ns):
            if num_bytes + size <= self._limit_bytes:
                return
            num_bytes -= path.stat().st_size
            path.unlink(missing_ok=True)

    def _counted(self) -> int:
        """The bytes of all files. There are some hundreds at most: a picture takes longer to encode than this."""
        num_bytes = 0
        with suppress(OSError):
            num_bytes = sum(file.stat().st_size for file in os.scandir(self._folder))
        self._count(num_bytes)
        return num_bytes

    def _path(self, namespace: str, key: bytes) -> Path:
        return self._folder / f"{namespace.replace('/', '-')}.{key.hex()}{_SUFFIX}"


def _checksum(key: bytes, content: bytes) -> bytes:
    return blake3(key).update(content).digest()
