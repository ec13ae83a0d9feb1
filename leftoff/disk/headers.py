"""The headers that clients used last, one file each in `<cache dir>/headers`, to be prewarmed for any model.

A file's name begins with its owner, the name of a tenant. Each owner has a few: a new one takes the place of the one
used least recently. The time of a file is that of its last use. What was learned of headers is kept beside them, under
names and a suffix of its own.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from blake3 import blake3

from leftoff.disk.errors import FirstProblem
from leftoff.disk.files import UNFINISHED, make_folder, read_small, write_small

FOLDER = "headers"
LEARNED = ".learned"  # the suffix of what was learned of headers
_MAX_PER_OWNER = 8
_MAX = 128
_MAX_BYTES = 1 << 20
_DIGITS = 32
_SUFFIX = ".json"


class HeaderFiles:
    """Any thread may call it. A failing disk raises nothing: a header is then not kept."""

    def __init__(
        self, root: Path, suffix: str = _SUFFIX, *, max_per_owner: int = _MAX_PER_OWNER, limit: int = _MAX
    ) -> None:
        self._folder = root / FOLDER
        self._suffix, self._max_per_owner, self._limit = suffix, max_per_owner, limit
        self._problem = FirstProblem("headers, or what was learned of them, are not kept", self._folder)

    def put(self, owner: str, content: bytes) -> None:
        """Keeps a header, or notes that it was used again."""
        path = self._path(owner, blake3(content).hexdigest()[:_DIGITS])
        try:
            os.utime(path)
        except FileNotFoundError:
            self._add(path, owner, content)
        except OSError as error:
            self._problem.tell(error)

    def keep(self, owner: str, name: str, content: bytes) -> None:
        """Keeps something under a name, in place of what had it."""
        self._add(self._path(owner, name), owner, content)

    def drop(self, owner: str, name: str) -> None:
        try:
            self._path(owner, name).unlink(missing_ok=True)
        except OSError as error:
            self._problem.tell(error)

    def last(self, owner: str | None = None) -> Iterator[bytes]:
        """The headers of an owner, or of all, the last used first."""
        for path in self._paths(owner):
            try:
                yield read_small(path, _MAX_BYTES)
            except FileNotFoundError:  # another server has removed it meanwhile
                continue
            except OSError as error:  # it is no file
                self._problem.tell(error)

    def remove(self, is_meant: Callable[[str, bytes], bool] = lambda _owner, _content: True) -> int:
        """Deletes headers by owner and content, and what was left unfinished; returns how many. Raises `OSError`."""
        if not self._folder.is_dir():
            return 0
        num_removed = 0
        for path in self._folder.iterdir():
            with suppress(FileNotFoundError):  # another server has removed it meanwhile
                content = path.read_bytes() if path.is_file() else b""
                if path.suffix == UNFINISHED or is_meant(_owner_of(path.name), content):
                    path.unlink()
                    num_removed += 1
        return num_removed

    def _add(self, path: Path, owner: str, content: bytes) -> None:
        if len(content) > _MAX_BYTES:
            return
        try:
            make_folder(self._folder)
            write_small(path, content)
            extra = [*self._paths(owner)[self._max_per_owner :], *self._paths()[self._limit :]]
            for old in extra:
                old.unlink(missing_ok=True)
        except OSError as error:
            self._problem.tell(error)

    def _paths(self, owner: str | None = None) -> list[Path]:
        """The last used first."""
        used_at: dict[Path, int] = {}
        with suppress(OSError):
            for file in os.scandir(self._folder):
                if file.name.endswith(self._suffix) and (owner is None or _owner_of(file.name) == owner):
                    with suppress(FileNotFoundError):  # another server has removed it meanwhile
                        used_at[Path(file)] = file.stat().st_mtime_ns
        return sorted(used_at, key=used_at.__getitem__, reverse=True)

    def _path(self, owner: str, name: str) -> Path:
        return self._folder / f"{owner}.{name}{self._suffix}"


def _owner_of(name: str) -> str:
    return name.partition(".")[0]
