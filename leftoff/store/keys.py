"""The names of all keys in the index (Redis or Valkey), and the formats of what lies under them. Pure: no client.

Tags are hashes of a namespace and the tokens up to a position (`blobs/path_hash.py`), cut to 16 bytes. No token and no
text is in the index. `F` is the beginning of the fingerprint of model, library and KV type; it stands in braces, so
that in a Redis Cluster all keys of one fingerprint lie on one machine.

    leftoff:{F}:run:<tag>      a bitmap: bit i is set if a blob ends at position start + i + 1, where <tag> is that at
                               `start`, a multiple of 1,024. Bits are never cleared: one too many costs a lookup
    leftoff:{F}:at:<tag>       the blobs that end where the path has this tag: b"kind:start:bytes ", one after the other
    leftoff:{F}:blobs          a sorted set of all blobs, as names of objects, by when they may go
    leftoff:{F}:bytes          their bytes
    leftoff:{F}:namespaces     a sorted set of namespaces, by last use
    leftoff:{F}:lease:<what>   a lease of the whole fleet: who collects, who rebuilds
    leftoff:{F}:reply:<k>      a remembered reply; <k> is the key of its conversation, which tells the namespace apart
    leftoff:{F}:replies:<h>    a set of these keys of a namespace, whose hash is <h>: to remove them all
    leftoff:{F}:reply-namespaces  a set of the namespaces that have replies
    leftoff:{F}:process        the number of the index's process when the objects were listed last
    leftoff:{F}:deltas         a stream: what replicas keep and drop, `cluster/replica.py`
    leftoff:{F}:held:<id>      a hash: all that a replica holds, tag -> `Held`, and b"number" of its last delta
    leftoff:secret             the secret of the fleet: with it the names of tenants are hashed
    leftoff:replicas           a sorted set of the ids of all replicas, of any fingerprint, by their last heartbeat
    leftoff:replica:<id>       a heartbeat, `Replica`, which expires
    leftoff:models             a sorted set of the names of models, by the last heartbeat of a replica that has one
    leftoff:probe              nothing: it is written to see whether the index takes what is written
"""

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from blake3 import blake3

from leftoff.blobs.blob import Blob
from leftoff.blobs.path_hash import RUN_TOKENS, HashedPath, short
from leftoff.engine.seal import SEAL_BYTES

REPLICAS = b"leftoff:replicas"
MODELS = b"leftoff:models"
SECRET = b"leftoff:secret"
PROBE = b"leftoff:probe"
NUMBER = b"number"  # the field of `held` that is no tag
_FINGERPRINT_DIGITS = 32
_MAX_KINDS = 1 << 16
# What an index that was tampered with may cost a request: a long prompt has a thousand blobs, and a position a few.
_MAX_FOUND = 8192
_MAX_AT_BYTES = 2048


def replica_key(replica_id: str) -> bytes:
    """The key of a replica's heartbeat."""
    return b"leftoff:replica:" + replica_id.encode()


def namespace_hash(namespace: str) -> str:
    """A namespace in keys and in names of objects."""
    return blake3(namespace.encode()).hexdigest(8)


class Keys:
    """The keys of one fingerprint."""

    def __init__(self, fingerprint: str) -> None:
        self.group = fingerprint[:_FINGERPRINT_DIGITS]
        self._prefix = f"leftoff:{{{self.group}}}:".encode()
        self.pattern = self._prefix.replace(b"{", b"\\{").replace(b"}", b"\\}") + b"*"  # of all of them
        self.blobs = self._prefix + b"blobs"
        self.bytes = self._prefix + b"bytes"
        self.namespaces = self._prefix + b"namespaces"
        self.reply_namespaces = self._prefix + b"reply-namespaces"
        self.deltas = self._prefix + b"deltas"
        self.process = self._prefix + b"process"

    def run(self, tag: bytes) -> bytes:
        return self._prefix + b"run:" + short(tag)

    def at(self, tag: bytes) -> bytes:
        return self._prefix + b"at:" + short(tag)

    def lease(self, what: str) -> bytes:
        return self._prefix + b"lease:" + what.encode()

    def reply(self, key: bytes) -> bytes:
        return self._prefix + b"reply:" + key

    def replies(self, namespace: str) -> bytes:
        """`namespace` is its hash."""
        return self._prefix + b"replies:" + namespace.encode()

    def held(self, replica_id: str) -> bytes:
        return self._prefix + b"held:" + replica_id.encode()


class PrefixSearch:
    """Finds the blobs on a prompt's path by two round trips, whatever the size of the fleet's index.

    search = PrefixSearch(keys, HashedPath(namespace, tokens))
    at_keys = search.at_keys(redis.mget(search.run_keys))
    blobs = search.blobs(redis.mget(at_keys))
    """

    def __init__(self, keys: Keys, path: HashedPath, start: int = 0) -> None:
        """Blobs that end at `start` or before are left out."""
        self._keys = keys
        self._path = path
        self._start = start
        self._length = int(path.tokens.size)
        first = start // RUN_TOKENS * RUN_TOKENS
        self._run_starts = range(first, self._length, RUN_TOKENS)
        self._ends: list[int] = []  # the positions where a blob may end

    @property
    def run_keys(self) -> list[bytes]:
        return [self._keys.run(self._path.tag(start)) for start in self._run_starts]

    def at_keys(self, maps: Sequence[bytes | None]) -> list[bytes]:
        """The keys of all positions where a blob may end; `maps` are the values of `run_keys`."""
        ends = (
            start + offset
            for start, bits in zip(self._run_starts, maps, strict=True)
            for offset in _offsets(bits or b"")
            if self._start < start + offset <= self._length
        )
        self._ends = [*islice(ends, _MAX_FOUND)]
        return [self._keys.at(self._path.tag(end)) for end in self._ends]

    def blobs(self, found: Sequence[bytes | None]) -> list[Blob]:
        """The blobs by position; `found` are the values of `at_keys`."""
        blobs = (
            Blob.at(kind, start, end, max(0, nbytes - SEAL_BYTES), self._path)
            for end, blobs in zip(self._ends, found, strict=True)
            if blobs and len(blobs) <= _MAX_AT_BYTES
            for kind, start, nbytes in _parsed(blobs)
            if start <= end
        )
        return [*islice(blobs, _MAX_FOUND)]


def blob_prefix(kind: int, start: int) -> bytes:
    """How a blob begins among those of its end; its bytes and a space follow."""
    return b"%d:%d:" % (kind, start)


def bit_of(end: int) -> int:
    """The bit of a position in the bitmap of its run."""
    return (end - 1) % RUN_TOKENS


def _offsets(bits: bytes) -> list[int]:
    """Positions after the run's start. Redis counts bits from the highest of each byte."""
    flags = np.unpackbits(np.frombuffer(bits[: RUN_TOKENS // 8], np.uint8))
    return [int(index) + 1 for index in np.flatnonzero(flags)]


def _parsed(blobs: bytes) -> Iterator[tuple[int, int, int]]:
    """Kind, start and bytes of each blob; what is no such thing is left out."""
    for blob in sorted(blobs.split()):
        parts = blob.split(b":")
        if len(parts) == 3 and all(part.isdigit() for part in parts) and int(parts[0]) < _MAX_KINDS:
            yield int(parts[0]), int(parts[1]), int(parts[2])
