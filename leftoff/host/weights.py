"""The weights of a model that waits for room are read into the page cache: loading them finds them there."""

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from leftoff.engine.devices import available_ram
from leftoff.engine.fingerprint import model_parts

_STEP_BYTES = 16 << 20


def read_weights(path: Path, is_wanted: Callable[[], bool]) -> threading.Thread | None:
    """Reads in a thread, as long as it is wanted. None if the files are not there, or there is no RAM to hold them."""
    parts = model_parts(path)
    with suppress(OSError):
        if hasattr(os, "posix_fadvise") and sum(part.stat().st_size for part in parts) < available_ram():
            thread = threading.Thread(target=_read, args=(parts, is_wanted), name="leftoff-weights", daemon=True)
            thread.start()
            return thread
    return None


def _read(parts: list[Path], is_wanted: Callable[[], bool]) -> None:
    with suppress(OSError):
        for part in parts:
            with part.open("rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                for start in range(0, size, _STEP_BYTES):
                    if not is_wanted():
                        return
                    length = min(_STEP_BYTES, size - start)
                    os.posix_fadvise(file.fileno(), start, length, os.POSIX_FADV_WILLNEED)
                    os.pread(file.fileno(), 1, start + length - 1)  # waits for what was begun
