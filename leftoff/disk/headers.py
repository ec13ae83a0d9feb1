"""The headers that clients used last, one file each in `<cache dir>/headers`, to be prewarmed for any model.

A file's name begins with its owner, the name of a tenant. Each owner has a few: a new one takes the place of the one
used least recently. The time of a file is that of its last use.
"""

import logging
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from blake3 import blake3

from leftoff.disk.errors import describe
from leftoff.disk.files import FILE_MODE, make_folder

logger = logging.getLogger("leftoff.disk")

FOLDER = "headers"
_MAX_PER_OWNER = 8
_MAX = 128
_MAX_BYTES = 1 << 20
_DIGITS = 32
_SUFFIX, _UNFINISHED = ".json", ".new"


class HeaderFiles:
    """Any thread may call it. A failing disk raises nothing: a header is then not kept."""

    def __init__(self, root: Path) -> None:
        self._folder = root / FOLDER
        self._has_failed = False

    def put(self, owner: str, content: bytes) -> None:
        """Keeps a header, or notes that it was used again."""
        path = self._folder / f"{owner}.{blake3(content).hexdigest()[:_DIGITS]}{_SUFFIX}"
        try:
            os.utime(path)
        except FileNotFoundError:
            self._add(path, owner, content)
        except OSError as error:
            self._tell(error)

    def last(self, owner: str | None = None) -> Iterator[bytes]:
        """The headers of an owner, or of all, the last used first."""
        for path in self._paths(owner):
            try:
                with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
                    yield file.read(_MAX_BYTES)
            except OSError as error:  # it was removed meanwhile, or is no file
                self._tell(error)

    def _add(self, path: Path, owner: str, content: bytes) -> None:
        if len(content) > _MAX_BYTES:
            return
        try:
            make_folder(self._folder)
            _write(path, content)
            extra = [*self._paths(owner)[_MAX_PER_OWNER:], *self._paths()[_MAX:]]
            for old in extra:
                old.unlink(missing_ok=True)
        except OSError as error:
            self._tell(error)

    def _paths(self, owner: str | None = None) -> list[Path]:
        """The last used first."""
        try:
            files = [file for file in os.scandir(self._folder) if file.name.endswith(_SUFFIX)]
            own = [file for file in files if owner is None or file.name.partition(".")[0] == owner]
            return [Path(file) for file in sorted(own, key=lambda file: file.stat().st_mtime_ns, reverse=True)]
        except OSError:
            return []

    def _tell(self, error: OSError) -> None:
        if not self._has_failed:
            logger.warning("headers are not kept for prewarming: %s", describe(error, self._folder))
        self._has_failed = True


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all; after a loss of power perhaps empty, which nobody can read as a header."""
    unfinished = path.with_name(f"{secrets.token_hex(8)}{_UNFINISHED}")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE), "wb") as file:
            file.write(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
