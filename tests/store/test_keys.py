"""The index is searched by position and tag: exactly the blobs of a prompt's own path are found, in any fleet."""

import time
from dataclasses import replace

import numpy as np

from leftoff.blobs.blob import Blob
from leftoff.blobs.path_hash import HashedPath, run_start, short
from leftoff.engine.seal import PAGE, SEAL_BYTES, SNAPSHOT
from leftoff.store.keys import Keys, PrefixSearch, bit_of, blob_prefix
from leftoff.types import Tokens
from tests.disk.stores import path_of

KEYS = Keys("ab" * 32)


class Index:
    """The part of Redis that a search reads, in two dictionaries."""

    def __init__(self) -> None:
        self.bits: dict[bytes, bytearray] = {}
        self.ends: dict[bytes, bytes] = {}

    def add(self, path: HashedPath, kind: int, start: int, end: int) -> Blob:
        bits = self.bits.setdefault(KEYS.run(path.tag(run_start(end))), bytearray(128))
        bits[bit_of(end) // 8] |= 128 >> bit_of(end) % 8
        at = KEYS.at(path.tag(end))
        self.ends[at] = self.ends.get(at, b"") + blob_prefix(kind, start) + b"%d " % (SEAL_BYTES + 1000)
        return replace(Blob.at(kind, start, end, 1000, path), last_used=0.0)

    def search(self, path: HashedPath, start: int = 0) -> list[Blob]:
        search = PrefixSearch(KEYS, path, start)
        maps = [bytes(self.bits[key]) if key in self.bits else None for key in search.run_keys]
        found = search.blobs([self.ends.get(key) for key in search.at_keys(maps)])
        return [replace(blob, last_used=0.0) for blob in found]


def tokens(*parts: int) -> Tokens:
    """So many tokens of each kind, one kind after the other."""
    return np.concatenate([np.full(count, number + 1, np.int32) for number, count in enumerate(parts)])


def test_all_blobs_of_a_path_are_found_by_position() -> None:
    index, path = Index(), HashedPath("", tokens(1000, 2000))
    blobs = [index.add(path, PAGE, 0, 1024), index.add(path, PAGE, 1024, 1025), index.add(path, SNAPSHOT, 2048, 2048)]
    blobs.append(index.add(path, SNAPSHOT, 3000, 3000))
    assert index.search(path) == blobs
    assert index.search(path, start=1024) == blobs[1:]
    assert index.search(HashedPath("", path.tokens[:2999])) == blobs[:3]


def test_another_branch_and_another_namespace_find_only_what_they_share() -> None:
    index, path = Index(), HashedPath("", tokens(1500, 1500))
    shared, _ = index.add(path, PAGE, 0, 1500), index.add(path, PAGE, 1500, 2000)
    branch = HashedPath("", np.concatenate([path.tokens[:1500], tokens(0, 0, 900)]))
    assert index.search(branch) == [shared]
    assert index.search(HashedPath("tenant/", path.tokens)) == []


def test_the_cost_of_a_search_does_not_grow_with_the_fleet() -> None:
    index, header = Index(), tokens(1100)
    for chat in range(300):
        path = HashedPath("", np.concatenate([header, np.full(200, 1000 + chat, np.int32)]))
        index.add(path, SNAPSHOT, 1110 + chat % 5, 1110 + chat % 5)
    search = PrefixSearch(KEYS, HashedPath("", np.concatenate([header, np.full(200, 1007, np.int32)])))
    maps = [bytes(index.bits.get(key, b"")) for key in search.run_keys]
    at_keys = search.at_keys(maps)
    assert len(at_keys) == 5
    assert [blob.end for blob in search.blobs([index.ends.get(key) for key in at_keys])] == [1112]


def test_what_is_no_blob_is_left_out() -> None:
    index, path = Index(), HashedPath("", tokens(50))
    blob = index.add(path, PAGE, 0, 50)
    index.ends[KEYS.at(path.tag(50))] += b"x:1:2 1::1 1:2:-7 1:60:7 99999:0:7 1:2 1:2:3:4 "
    assert index.search(path) == [blob]


def test_keys_of_two_fingerprints_have_nothing_in_common() -> None:
    tag, other = bytes(32), Keys("cd" * 32)
    assert KEYS.run(tag) != other.run(tag)
    assert KEYS.at(tag).endswith(short(tag))
    assert KEYS.blobs != other.blobs


def test_values_that_were_tampered_with_cost_little() -> None:
    path = HashedPath("", path_of(70_000))
    began = time.thread_time()
    search = PrefixSearch(KEYS, path)
    at_keys = search.at_keys([b"\xff" * 128 for _ in search.run_keys])
    many = b"".join(b"1:%d:9 " % start for start in range(200))
    values = [b"1:0:9 " * 60_000, b"9" * 5000, b"1:%s:9 " % (b"0" * 5000), many]
    found = search.blobs([values[index % len(values)] for index in range(len(at_keys))])
    assert time.thread_time() - began < 2
    assert len(at_keys) == len(found) == 8192
