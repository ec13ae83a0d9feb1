"""The content of one model's folder for people who look at it: its branches, and what is needed to resume at a blob.

Reads the index only, also while a server writes to it.
"""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from leftoff.blobs.blob import Blob
from leftoff.blobs.path_hash import TOKEN_BYTES, PathHash, as_tokens
from leftoff.cache.tree import common_prefix
from leftoff.disk.errors import BundleError
from leftoff.disk.index import FILE, Content, Index
from leftoff.disk.rebuild import Branch, rebuild_branches
from leftoff.types import Tokens


@dataclass(frozen=True)
class BlobPath:
    """The path to one blob: the blobs on it, rising by position, and those borrowed from other paths.

    Where two paths part inside a page, the page belongs to the path that came first; the other borrows its beginning:

        first   [ page )[ page ·····│····· )
        other   [ page )            └──[ page )      the second page of the first path is borrowed up to the fork
    """

    namespace: str
    tokens: Tokens
    blobs: list[Blob]
    borrowed: list[Blob]
    is_whole: bool  # every position is covered, so that the path can be resumed


class Catalog:
    """The content of an index at one moment."""

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
        return rebuild_branches(self._content)

    def named(self, prefix: str) -> list[Blob]:
        return [blob for blob in self.blobs if blob.name.startswith(prefix)]

    def path_to(self, blob: Blob) -> BlobPath:
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
        return BlobPath(blob.namespace, as_tokens(content), blobs, borrowed, is_whole)

    def tokens_to(self, blob: Blob) -> Tokens:
        return as_tokens(self._tokens_to(blob))

    @cached_property
    def _branches(self) -> dict[str, Branch]:
        return {blob.name: branch for branch in self.branches() for blob in branch.blobs}

    def _tokens_to(self, blob: Blob) -> bytes:
        branch = self._branches.get(blob.name)
        if branch is None:
            raise BundleError(f"{blob.name} is of unknown tokens: `leftoff cache verify --fix` removes it")
        return branch.tokens[: blob.end * TOKEN_BYTES]

    def _blobs_on(self, namespace: str, tokens: bytes) -> list[Blob]:
        candidates = [blob for blob in self.blobs if blob.namespace == namespace]
        candidates.sort(key=lambda blob: (blob.end, blob.start))
        path_hash, position, found = PathHash(namespace), 0, []
        for blob in candidates:
            if blob.end * TOKEN_BYTES > len(tokens):
                break
            path_hash.read(tokens[position * TOKEN_BYTES : blob.end * TOKEN_BYTES])
            position = blob.end
            if blob.tag == path_hash.tag:
                found.append(blob)
        return found

    def _longest_loan(self, namespace: str, content: bytes, position: int) -> tuple[Blob | None, int]:
        """The page of another path that covers most from `position` on, and up to where both paths are the same."""
        longest, reach = None, position
        for page in self.blobs:
            if page.is_page and page.namespace == namespace and page.start <= position < page.end:
                with suppress(BundleError):
                    shared = common_prefix(as_tokens(content), as_tokens(self._tokens_to(page)))
                    if min(shared, page.end) > reach:
                        longest, reach = page, min(shared, page.end)
        return longest, reach


def _covered(blobs: list[Blob], position: int) -> int:
    """The end of the positions that pages cover without a gap, if all before `position` are covered."""
    for page in sorted((blob for blob in blobs if blob.is_page), key=lambda page: page.start):
        if page.start <= position:
            position = max(position, page.end)
    return position
