"""Checks everything a model has on disk: the index, the paths in it, and every byte of every file."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from leftoff.blobs.blob import Blob
from leftoff.disk.errors import DamagedIndexError, FolderBusyError
from leftoff.disk.files import BlobFiles
from leftoff.disk.folder import BLOBS, ModelFolder
from leftoff.disk.index import FILE, Content, Index
from leftoff.disk.rebuild import rebuild_branches
from leftoff.disk.tools.models import ModelUsage, remove_model
from leftoff.engine.errors import BlobError
from leftoff.engine.memory.arena import Arena

Progress = Callable[[float], None]


@dataclass(frozen=True)
class Fault:
    """A faulty file or object, or an entry of an index without one, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True)
class Findings:
    """The result of checking what is kept of one model."""

    num_blobs: int
    nbytes: int
    faults: list[Fault]
    note: str = ""  # why nothing could be checked


def verify_folder(folder: Path, progress: Progress = lambda _: None) -> Findings:
    """Checks a folder, also while a server writes to it: what the server removes meanwhile is no fault."""
    try:
        with closing(Index.look(folder / FILE)) as index:
            return _verify(index, folder, progress)
    except DamagedIndexError as error:
        return Findings(0, 0, [Fault(FILE, str(error))])
    except OSError as error:
        return Findings(0, 0, [], note=str(error))


def remove_faults(usage: ModelUsage, faults: list[Fault]) -> None:
    """Removes faulty blobs, or the whole folder if its index is damaged. `FolderBusyError` if a process uses it."""
    if any(fault.name == FILE for fault in faults):
        if not remove_model(usage.path):
            raise FolderBusyError(usage.path, usage.pid)
        return
    folder = ModelFolder(usage.path, usage.fingerprint)
    try:
        folder.open()
        folder.reconcile(folder.index.names() - {fault.name for fault in faults})
    finally:
        folder.close()


def _verify(index: Index, folder: Path, progress: Progress) -> Findings:
    content, names = index.content(), index.names()
    files = BlobFiles(folder / BLOBS, index.meta("fingerprint"))
    arena = Arena()
    reasons = _faults_of_rows(content, names)
    total = max(1, sum(blob.file_bytes for blob in content.blobs))
    done = 0
    for blob in content.blobs:
        reason = _fault_of_file(files, blob, arena)
        if reason:
            reasons.setdefault(blob.name, reason)
        done += blob.file_bytes
        progress(done / total)
    faults = [Fault(name, reason) for name, reason in sorted(reasons.items()) if index.has(name)]
    return Findings(len(names), done, faults)


def _faults_of_rows(content: Content, names: set[str]) -> dict[str, str]:
    sound = {blob.name for branch in rebuild_branches(content) for blob in branch.blobs}
    readable = {blob.name for blob in content.blobs}
    unknown = dict.fromkeys(readable - sound, "the index has lost the tokens it is of")
    return unknown | dict.fromkeys(names - readable, "its row in the index is damaged")


def _fault_of_file(files: BlobFiles, blob: Blob, arena: Arena) -> str:
    try:
        files.read(blob, arena)
    except FileNotFoundError:
        return "the file is missing"
    except (BlobError, OSError) as error:
        return str(error)
    return ""
