"""Hashes model and library files, so that state made by one is never loaded into another.

Hashing tens of gigabytes takes seconds, so hashes are remembered in a file, by path, size, time and inode.
"""

import json
import os
import re
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from blake3 import blake3

_MEMORY = "fingerprints.json"
_MAX_REMEMBERED = 256
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


class Identity(NamedTuple):
    """Tells a file from another one that lay in its place before or lies there afterwards."""

    path: str
    num_bytes: int
    changed_ns: int
    inode: int


def cache_folder() -> Path:
    """The user's cache folder for leftoff."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "leftoff"


def file_fingerprint(path: Path, memory_folder: Path | None = None) -> str:
    """Hash of the whole content, over all parts of a split model."""
    parts = model_parts(path)
    identity = json.dumps([identity_of(part) for part in parts])
    memory = (memory_folder or cache_folder()) / _MEMORY
    remembered = _read(memory)
    if identity not in remembered:
        whole = blake3(max_threads=blake3.AUTO)
        for part in parts:
            whole.update_mmap(part)
        remembered[identity] = whole.hexdigest()
        if identity == json.dumps([identity_of(part) for part in parts]):  # else another file was hashed
            _write(memory, remembered)
    return remembered[identity]


def model_parts(path: Path) -> list[Path]:
    """All files of a model: three for `name-00001-of-00003.gguf`."""
    match = _SPLIT.search(path.name)
    if not match:
        return [path]
    stem, count = path.name[: match.start()], int(match[2])
    return [path.with_name(f"{stem}-{part:05}-of-{count:05}.gguf") for part in range(1, count + 1)]


def identity_of(path: Path) -> Identity:
    """The identity of the file that lies there now."""
    stat = path.stat()
    return Identity(str(path.resolve()), stat.st_size, stat.st_mtime_ns, stat.st_ino)


def is_untouched(handle: int, file: Identity) -> bool:
    """Whether nobody has written into an open file, wherever it lies now: one in its place is another."""
    stat = os.fstat(handle)
    return (stat.st_size, stat.st_mtime_ns) == (file.num_bytes, file.changed_ns)


def _read(memory: Path) -> dict[str, str]:
    # If the file is missing or damaged, everything is hashed again.
    with suppress(OSError, ValueError):
        content = json.loads(memory.read_text())
        if isinstance(content, dict):
            return {str(key): str(value) for key, value in content.items()}
    return {}


def _write(memory: Path, remembered: dict[str, str]) -> None:
    recent = dict([*remembered.items()][-_MAX_REMEMBERED:])
    with suppress(OSError):
        memory.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=memory.parent) as aside:  # which goes if the disk is full
            new = Path(aside, memory.name)
            new.touch(0o600)
            new.write_text(json.dumps(recent))
            new.replace(memory)
