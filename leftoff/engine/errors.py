"""Errors of the engine. Every message names the value and the way out."""

from leftoff.errors import LeftoffError


class EngineError(LeftoffError):
    """Base of all errors of the engine. The process and the engine remain usable."""


class LibraryError(EngineError):
    """No usable llama.cpp library: missing, too old, or of an unknown build."""


class ModelError(EngineError):
    """The file is not a model that this library can run."""


class InputError(EngineError):
    """An argument on which llama.cpp would abort or compute a wrong result."""


class NoRoomError(EngineError):
    """More tokens than free KV cells. Nothing was changed."""


class CancelledError(EngineError):
    """The decode was cancelled. Sequences can go on from their state before it."""


class BlobError(EngineError):
    """A saved page or snapshot is damaged, or was made by another model or library."""
