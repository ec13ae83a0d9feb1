"""Makes what is on disk smaller by hand: what was not used for longest goes first, and of a conversation its end."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

from leftoff.disk.blob import Blob
from leftoff.disk.folder import ModelFolder
from leftoff.disk.tools.models import ModelUsage

Held = tuple[ModelFolder, Blob]


@dataclass(frozen=True)
class Pruned:
    """What went, and what is left."""

    num_blobs: int
    nbytes: int
    left_bytes: int


def prune(usages: Sequence[ModelUsage], *, to_bytes: int | None, before: float | None) -> Pruned:
    """Of some models, until all together have `to_bytes`, and all that was used last `before` a time.

    Nobody else may use their folders: if somebody does, nothing was touched.
    """
    with ExitStack() as open_folders:
        held: list[Held] = []
        for usage in usages:
            folder = ModelFolder(usage.path, usage.fingerprint)
            open_folders.callback(folder.close)
            folder.open()
            held += [(folder, blob) for blob in folder.index.blobs()]
        going = _going(held, to_bytes, before)
        for folder, group in groupby(going, key=itemgetter(0)):
            folder.remove([blob.name for _, blob in group])
        for folder in {folder for folder, _ in going}:
            folder.index.drop_unreachable_runs()
    nbytes = _sum(going)
    return Pruned(len(going), nbytes, _sum(held) - nbytes)


def _going(held: list[Held], to_bytes: int | None, before: float | None) -> list[Held]:
    going = []
    left = _sum(held)
    for folder, blob in sorted(held, key=lambda pair: (pair[1].last_used, -pair[1].end)):
        is_old = before is not None and blob.last_used < before
        is_too_much = to_bytes is not None and left > to_bytes
        if is_old or is_too_much:
            going.append((folder, blob))
            left -= blob.file_bytes
    return going


def _sum(held: list[Held]) -> int:
    return sum(blob.file_bytes for _, blob in held)
