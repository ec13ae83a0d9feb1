"""What one model has on disk, for people who look: conversations, and everything on the way to one position.

Reads the index alone, also while a server writes to it.
"""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from leftoff.disk.blob import Blob
from leftoff.disk.errors import BundleError
from leftoff.disk.index import FILE, Content, Index
from leftoff.disk.path_hash import TOKEN_BYTES, Chain, as_tokens
from leftoff.disk.rebuild import Recall
from leftoff.types import Tokens


@dataclass(frozen=True)
class Branch:
    """A conversation from its first token to a leaf. What conversations share is counted with the first of them."""

    namespace: str
    num_tokens: int
    blobs: list[Blob]

    @property
    def tip(self) -> Blob:
        """What stands for it: from its last position everything is resumed."""
        return max(self.blobs, key=lambda blob: (blob.end, blob.start))

    @property
    def num_pages(self) -> int:
        return sum(blob.is_page for blob in self.blobs)

    @property
    def num_snapshots(self) -> int:
        return len(self.blobs) - self.num_pages

    @property
    def nbytes(self) -> int:
        return sum(blob.file_bytes for blob in self.blobs)

    @property
    def last_used(self) -> float:
        return max(blob.last_used for blob in self.blobs)


@dataclass(frozen=True)
class Way:
    """What lies on the path to one blob, rising by position, and what is needed besides to resume there.

    Where paths part in the middle of a page, the page belongs to the one that was there first, and the others use its
    beginning: they have `borrowed` it.
    """

    namespace: str
    tokens: Tokens
    blobs: list[Blob]
    borrowed: list[Blob]
    is_whole: bool  # every position is covered


class Catalog:
    """One look at an index."""

    def __init__(self, content: Content, fingerprint: str, label: str) -> None:
        self.fingerprint = fingerprint
        self.label = label
        self.blobs = content.blobs
        self._content = content

    @classmethod
    def of(cls, folder: Path) -> "Catalog":
        with closing(Index.look(folder / FILE)) as index:
            return cls(index.content(), index.meta("fingerprint"), index.meta("label"))

    def branches(self) -> Iterator[Branch]:
        for path in Recall(self._content).paths():
            yield Branch(path.namespace, len(path.tokens) // TOKEN_BYTES, path.blobs)

    def named(self, prefix: str) -> list[Blob]:
        return [blob for blob in self.blobs if blob.name.startswith(prefix)]

    def way_to(self, blob: Blob) -> Way:
        content = self._tokens_to(blob)
        blobs = self._blobs_on(blob.namespace, content)
        borrowed, position = [], _covered(blobs, 0)
        has_pages = any(other.is_page for other in self.blobs)
        while has_pages and position < blob.end:
            page, reach = self._longest_loan(blob.namespace, content, position)
            if page is None:
                break
            borrowed.append(page)
            position = _covered(blobs, reach)
        is_whole = not has_pages or position >= blob.end
        return Way(blob.namespace, as_tokens(content), blobs, borrowed, is_whole)

    def tokens_to(self, blob: Blob) -> Tokens:
        return as_tokens(self._tokens_to(blob))

    @cached_property
    def _runs(self) -> dict[bytes, tuple[bytes, bytes]]:
        return {run.tag: (run.parent, bytes(run.tokens)) for run in self._content.runs}

    def _tokens_to(self, blob: Blob) -> bytes:
        root, tag = Chain(blob.namespace).tag, blob.tag
        cells: list[bytes] = []
        while tag != root:
            if tag not in self._runs or len(cells) > len(self._runs):
                raise BundleError(f"{blob.name} is of unknown tokens: `leftoff cache verify --fix` removes it")
            tag, tokens = self._runs[tag]
            cells.append(tokens)
        tokens = b"".join(reversed(cells))
        if Chain(blob.namespace).read(tokens).tag != blob.tag:
            raise BundleError(f"{blob.name} is of other tokens: `leftoff cache verify --fix` removes it")
        return tokens

    def _blobs_on(self, namespace: str, tokens: bytes) -> list[Blob]:
        candidates = [blob for blob in self.blobs if blob.namespace == namespace]
        candidates.sort(key=lambda blob: (blob.end, blob.start))
        chain, position, found = Chain(namespace), 0, []
        for blob in candidates:
            if blob.end * TOKEN_BYTES > len(tokens):
                break
            chain.read(tokens[position * TOKEN_BYTES : blob.end * TOKEN_BYTES])
            position = blob.end
            if blob.tag == chain.tag:
                found.append(blob)
        return found

    def _longest_loan(self, namespace: str, content: bytes, position: int) -> tuple[Blob | None, int]:
        """The page of another path that covers most from a position on, and how far the paths are one."""
        longest, reach = None, position
        for page in self.blobs:
            if page.is_page and page.namespace == namespace and page.start <= position < page.end:
                with suppress(BundleError):
                    shared = _num_shared(content, self._tokens_to(page))
                    if min(shared, page.end) > reach:
                        longest, reach = page, min(shared, page.end)
        return longest, reach


def _covered(blobs: list[Blob], position: int) -> int:
    """How far pages go on covering positions that are covered up to one."""
    for page in sorted((blob for blob in blobs if blob.is_page), key=lambda page: page.start):
        if page.start <= position:
            position = max(position, page.end)
    return position


def _num_shared(first: bytes, second: bytes) -> int:
    """Tokens that two paths have in common."""
    length = min(len(first), len(second))
    differing = np.flatnonzero(np.frombuffer(first[:length], "<i4") != np.frombuffer(second[:length], "<i4"))
    return int(differing[0]) if differing.size else length // TOKEN_BYTES
