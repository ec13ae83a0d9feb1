"""A cache folder for each replica that Ray starts on a node: one process at a time uses a folder."""

import argparse
import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path

from leftoff.disk.errors import FolderBusyError
from leftoff.disk.folder import FolderLock
from leftoff.engine.fingerprint import cache_folder


class OwnFolder:
    """The first of `replica-0`, `replica-1`, … that no other has. It is locked as long as this process lives."""

    def __init__(self, flags: Sequence[str]) -> None:
        """`flags` are those of `leftoff serve`, which may name the folder in which it is made."""
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
        parser.add_argument("--cache-dir", default=os.environ.get("LEFTOFF_CACHE_DIR") or cache_folder())
        root = Path(parser.parse_known_args(flags)[0].cache_dir).expanduser()
        for number in count():
            self.path = root / f"replica-{number}"
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FolderBusyError):
                self._lock = FolderLock.take(self.path)
                break

    def close(self) -> None:
        self._lock.release()
