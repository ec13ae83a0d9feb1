"""Why a cache folder cannot be used. The server serves without it; every message names the folder and the way out."""

from pathlib import Path


class FolderError(OSError):
    """A folder that is not ours to use now. Nothing in it was touched."""


class FolderBusyError(FolderError):
    """Another process uses it. The message is for a second server."""

    def __init__(self, folder: Path, pid: int | None) -> None:
        self.folder = folder
        self.holder = f"process {pid}" if pid else "a process that did not give its number"
        super().__init__(
            f"{folder} is in use by another leftoff ({self.holder}): two servers of one model need a folder each, "
            "so give one of them another --cache-dir"
        )


class NewerFormatError(FolderError):
    """A newer leftoff wrote it."""


class BundleError(FolderError):
    """A file that cannot be taken in, or something that cannot be handed out as one."""


class DamagedIndexError(Exception):
    """An index that says what cannot be. It is set aside, and its files go."""
