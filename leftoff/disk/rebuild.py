"""Rebuilds the branches of the tree, and the blobs on them, from the rows of an index.

Every run is hashed again: a path that does not match its tag, for whatever reason, is left out with all blobs on it.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from leftoff.blobs.blob import Blob
from leftoff.blobs.path_hash import RUN_TOKENS, TOKEN_BYTES, PathHash
from leftoff.disk.index import Content, TokenRun


@dataclass(frozen=True)
class Branch:
    """The runs from the root to a leaf, and the blobs on the way that no earlier branch has had."""

    namespace: str
    runs: list[bytes]  # joined only on demand, since branches share most of them
    blobs: list[Blob]

    @property
    def num_tokens(self) -> int:
        return max(blob.end for blob in self.blobs)

    @property
    def tokens(self) -> bytes:
        return b"".join(self.runs)[: self.num_tokens * TOKEN_BYTES]

    @property
    def tip(self) -> Blob:
        """The last blob: resuming there reuses the whole branch."""
        return max(self.blobs, key=lambda blob: (blob.end, blob.start))

    @property
    def num_pages(self) -> int:
        return sum(blob.is_page for blob in self.blobs)

    @property
    def num_snapshots(self) -> int:
        return sum(blob.is_snapshot for blob in self.blobs)

    @property
    def nbytes(self) -> int:
        return sum(blob.file_bytes for blob in self.blobs)

    @property
    def last_used(self) -> float:
        return max(blob.last_used for blob in self.blobs)


@dataclass(frozen=True, slots=True)
class _Step:
    """A run on the way to a leaf. If `is_prefix`, it is the beginning of a longer run that is walked next."""

    run: TokenRun
    after: PathHash
    is_prefix: bool

    @property
    def end(self) -> int:
        return self.run.start + len(self.run.tokens) // TOKEN_BYTES


def rebuild_branches(content: Content) -> Iterator[Branch]:
    """All branches of all namespaces; each blob is on exactly one of them."""
    walk = _Walk(content)
    for namespace in sorted({blob.namespace for blob in content.blobs}):
        yield from walk.branches(namespace)


class _Walk:
    """Walks the runs depth first."""

    def __init__(self, content: Content) -> None:
        self._following: dict[bytes, list[TokenRun]] = defaultdict(list)
        self._blobs: dict[bytes, list[Blob]] = defaultdict(list)
        for run in content.runs:
            self._following[run.parent].append(run)
        for blob in content.blobs:
            self._blobs[blob.tag].append(blob)

    def branches(self, namespace: str) -> Iterator[Branch]:
        waiting: list[_Step] = self._steps(PathHash(namespace), 0)
        runs: list[bytes] = []  # from the root to here
        blobs: list[Blob] = []  # on the same way, and not yet on a branch
        while waiting:
            step = waiting.pop()
            del runs[step.run.start // RUN_TOKENS :]
            runs.append(bytes(step.run.tokens))
            blobs += self._blobs_at(step, namespace)
            following = self._steps(step.after, step.end)
            waiting += following
            if not following and not step.is_prefix and blobs:
                yield Branch(namespace, [*runs], blobs)
                blobs = []

    def _steps(self, path_hash: PathHash, position: int) -> list[_Step]:
        """The sound runs that follow, sorted so that a prefix is popped just before a longer run."""
        sound = []
        for run in self._following.get(path_hash.tag, ()):
            after = path_hash.copy().read(run.tokens)
            if after.tag == run.tag and run.start == position:
                sound.append((run, after))
        sound.sort(key=lambda pair: bytes(pair[0].tokens), reverse=True)
        steps, next_tokens = [], b""
        for run, after in sound:
            steps.append(_Step(run, after, is_prefix=next_tokens.startswith(run.tokens)))
            next_tokens = bytes(run.tokens)
        return steps

    def _blobs_at(self, step: _Step, namespace: str) -> list[Blob]:
        blobs = self._blobs.get(step.run.tag, ())
        return [blob for blob in blobs if blob.end == step.end and blob.namespace == namespace]
