"""What can go wrong in the engine. Every message names the value and the way out."""

from leftoff.errors import LeftoffError


class EngineError(LeftoffError):
    """Anything the engine refuses or fails to do. The process lives on."""


class LibraryError(EngineError):
    """No usable llama.cpp library: missing, too old, or of an unknown build."""


class ModelError(EngineError):
    """A file that is not a model this library can run."""


class InputError(EngineError):
    """An argument llama.cpp would answer with a wrong result or an abort."""


class NoRoomError(EngineError):
    """More tokens than free cells. Nothing was changed."""


class CancelledError(EngineError):
    """The decode was cancelled. What stood before it can be resumed."""


class BlobError(EngineError):
    """Bytes from outside that are damaged, or made by another model or library."""
