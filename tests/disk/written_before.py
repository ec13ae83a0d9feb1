"""A cache folder as leftoff wrote it before disk and store became one tier: `written_before.zip`, and what is in it.

    python -m tests.disk.written_before /tmp/folder

wrote it, with the code of commit 5f7629c. It is not made anew: it stands for the folders that people have.
"""

import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from leftoff.cache.blob_store import Item, Record
from leftoff.disk.headers import HeaderFiles
from leftoff.disk.medium import open_folder
from leftoff.disk.reply_store import open_replies
from leftoff.disk.secret import folder_secret
from leftoff.engine.memory.base import WindowPage
from leftoff.types import Tokens
from tests.disk.stores import ARENA, FINGERPRINT, WAIT_S, filled, page, path_of, put, snapshot

ZIP = Path(__file__).with_suffix(".zip")
LABEL = "a model"
WINDOW_TOKENS = 40  # as `tests.cache.chain` has it
_FORK = 1300  # inside of a page, and of a run of tokens
_PAGE_TOKENS = 256


@dataclass(frozen=True)
class WrittenPath:
    """A path of tokens, the positions of its snapshots, and where the pages begin that no path before has."""

    namespace: str
    tokens: Tokens
    snapshots: tuple[int, ...]
    first: int = 0

    def items(self) -> Iterator[Item]:
        length = int(self.tokens.size)
        for start in range(self.first, length, _PAGE_TOKENS):
            yield page(start, min(length, start + _PAGE_TOKENS), 400)
        for position in self.snapshots:
            yield from (_window_page(end - 20, end) for end in (position - 20, position))
            yield snapshot(position, 600)


def _window_page(start: int, end: int) -> WindowPage:
    return WindowPage(start, end, filled(100, f"window page {start} {end}"))


def _forked() -> Tokens:
    return np.concatenate([path_of(2600)[:_FORK], path_of(1000, seed=1)])


PATHS = (
    WrittenPath("", path_of(2600), (1024, _FORK, 2600)),
    WrittenPath("", _forked(), (2300,), first=_FORK),
    WrittenPath("tenant/salt", path_of(700), (700,)),
)
REPLIES = {
    b"a" * 32: ("", b"a reply"),
    b"b" * 32: ("", bytes(range(256))),
    b"c" * 32: ("tenant/salt", "grüße".encode()),
}
HEADERS = {"": b'{"messages": []}', "tenant": b'{"messages": [{"role": "system", "content": "be brief"}]}'}


def write(root: Path) -> None:
    """Writes the folder; what is random in it is the secret alone."""
    folder_secret(root)
    for owner, header in HEADERS.items():
        HeaderFiles(root).put(owner, header)
    store = open_folder(root, FINGERPRINT, ARENA, label=LABEL, daily_bytes=1 << 30)
    records: list[Record] = [put(store, item, path.tokens, path.namespace) for path in PATHS for item in path.items()]
    assert store.flush(WAIT_S)
    store.record_hits(records[:3])
    replies = open_replies(store.medium.path, FINGERPRINT)
    assert replies is not None
    for key, (namespace, value) in REPLIES.items():
        replies.put(key, namespace, value)
    replies.close()
    store.close(WAIT_S)


def unpacked(folder: Path) -> Path:
    """A copy of what was written, for a test to open and change."""
    with zipfile.ZipFile(ZIP) as packed:
        packed.extractall(folder)
    return folder


def packed(folder: Path, target: Path) -> None:
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder))


if __name__ == "__main__":
    write(Path(sys.argv[1]))
    packed(Path(sys.argv[1]), ZIP)
