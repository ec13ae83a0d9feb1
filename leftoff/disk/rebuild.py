"""From the rows of an index back to paths and what lies on them.

Every run is hashed again on the way: a path that is not what its tag says, whatever happened to the index, is not
recalled, and neither is what lies on it.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from leftoff.cache.blob_store import Record, StoredPath
from leftoff.disk import clock
from leftoff.disk.blob import Blob
from leftoff.disk.index import Content, Run
from leftoff.disk.path_hash import CELL_TOKENS, TOKEN_BYTES, Chain, as_tokens


@dataclass(frozen=True)
class Path:
    """The tokens of a leaf, and the blobs on the way to it that no path before has had."""

    namespace: str
    tokens: bytes
    blobs: list[Blob]

    def kept(self, records: Mapping[str, Record]) -> StoredPath:
        """With the blobs that have a record."""
        now = clock.now()
        blobs = sorted((blob for blob in self.blobs if blob.name in records), key=lambda blob: (blob.end, blob.start))
        return StoredPath(
            self.namespace,
            as_tokens(self.tokens),
            [blob.holding(records[blob.name]) for blob in blobs],
            [max(0.0, now - blob.last_used) for blob in blobs],
        )


@dataclass(frozen=True, slots=True)
class _Step:
    """A run on the way to a leaf. One that `goes_on` is the beginning of the run that comes next."""

    run: Run
    after: Chain
    goes_on: bool

    @property
    def end(self) -> int:
        return self.run.start + len(self.run.tokens) // TOKEN_BYTES


class Recall:
    """Walks the paths, leaf by leaf."""

    def __init__(self, content: Content) -> None:
        self._following: dict[bytes, list[Run]] = defaultdict(list)
        self._blobs: dict[bytes, list[Blob]] = defaultdict(list)
        self._namespaces = sorted({blob.namespace for blob in content.blobs})
        for run in content.runs:
            self._following[run.parent].append(run)
        for blob in content.blobs:
            self._blobs[blob.tag].append(blob)

    def paths(self) -> Iterator[Path]:
        for namespace in self._namespaces:
            yield from self._paths_of(namespace)

    def _paths_of(self, namespace: str) -> Iterator[Path]:
        waiting: list[_Step] = self._steps(Chain(namespace), 0)
        cells: list[bytes] = []  # on the way to where we are
        blobs: list[Blob] = []  # on the same way, and not yet handed out
        while waiting:
            step = waiting.pop()
            del cells[step.run.start // CELL_TOKENS :]
            cells.append(bytes(step.run.tokens))
            blobs += self._blobs_at(step, namespace)
            following = self._steps(step.after, step.end)
            waiting += following
            if not following and not step.goes_on and blobs:
                num_bytes = max(blob.end for blob in blobs) * TOKEN_BYTES
                yield Path(namespace, b"".join(cells)[:num_bytes], blobs)
                blobs = []

    def _steps(self, chain: Chain, position: int) -> list[_Step]:
        """The runs that follow, the first one last. Sorted by their tokens, a beginning stands before what goes on."""
        sound = []
        for run in self._following.get(chain.tag, ()):
            after = chain.copy().read(run.tokens)
            if after.tag == run.tag and run.start == position:
                sound.append((run, after))
        sound.sort(key=lambda pair: bytes(pair[0].tokens), reverse=True)
        steps, next_tokens = [], b""
        for run, after in sound:
            steps.append(_Step(run, after, goes_on=next_tokens.startswith(run.tokens)))
            next_tokens = bytes(run.tokens)
        return steps

    def _blobs_at(self, step: _Step, namespace: str) -> list[Blob]:
        blobs = self._blobs.get(step.run.tag, ())
        return [blob for blob in blobs if blob.end == step.end and blob.namespace == namespace]
