"""Errors of the engine. Every message names the value and the way out."""

import re

from leftoff.errors import LeftoffError

_NO_MEMORY = re.compile("alloc|out of memory|out of device memory", re.IGNORECASE)


class EngineError(LeftoffError):
    """Base of all errors of the engine. The process and the engine remain usable."""


class LibraryError(EngineError):
    """No usable llama.cpp library: missing, too old, or of an unknown build."""


class ModelError(EngineError):
    """The file is not a model that this library can run."""


class ReplacedError(ModelError):
    """Another model lies where this one was loaded from."""


class OutOfMemoryError(EngineError):
    """The memory of a device or of the machine does not hold the model or its context."""


class InputError(EngineError):
    """An argument on which llama.cpp would abort or compute a wrong result."""


class NoRoomError(EngineError):
    """More tokens than free KV cells. Nothing was changed."""


class CancelledError(EngineError):
    """The decode was cancelled: sequences can go on from their state before it. Or the load of a model was."""


class BlobError(EngineError):
    """A saved page or snapshot is damaged, or was made by another model or library."""


def memory_shortage(log: str) -> str | None:
    """The last logged error of llama.cpp that tells of memory; None if none does. It has no error code for that."""
    errors = [error for error in log.split("; ") if _NO_MEMORY.search(error)]
    return errors[-1].partition(": ")[2] or errors[-1] if errors else None
