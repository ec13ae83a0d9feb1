"""From the rows of an index, every item comes back once, on its own path."""

import dataclasses
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from leftoff.blobs.blob import Blob
from leftoff.blobs.path_hash import HashedPath
from leftoff.cache.blob_store import Item, Record
from leftoff.disk.index import Content, TokenRun, runs_back
from leftoff.disk.rebuild import rebuild_branches
from leftoff.engine.memory.base import Page, Snapshot
from leftoff.types import Tokens
from tests.cache.memory_blob_store import MemoryBlobStore

NOTHING = Record("", 0, MemoryBlobStore())
# around the edges of the grid, and far from them
POSITIONS = (1, 2, 700, 1023, 1024, 1025, 2047, 2048, 2049, 3500)


@st.composite
def trees(draw: st.DrawFn) -> list[tuple[str, Tokens]]:
    """Paths, most of which leave an earlier one somewhere."""
    paths: list[tuple[str, Tokens]] = []
    for number in range(draw(st.integers(1, 6))):
        namespace = draw(st.sampled_from(["", "tenant"]))
        tokens = np.full(draw(st.sampled_from(POSITIONS)), number, np.int32)
        if paths:
            before = draw(st.sampled_from(paths))[1]
            shared = min(tokens.size, before.size, draw(st.sampled_from((0, *POSITIONS))))
            tokens[:shared] = before[:shared]
        paths.append((namespace, tokens))
    return paths


@st.composite
def stored(draw: st.DrawFn) -> dict[str, tuple[Blob, Tokens]]:
    items: dict[str, tuple[Blob, Tokens]] = {}
    for namespace, tokens in draw(trees()):
        for position in draw(st.sets(st.sampled_from(POSITIONS), min_size=1)):
            end = min(position, tokens.size)
            choices: list[Item] = [Page(end // 2, end, NOTHING), Snapshot(end, NOTHING)]
            item = draw(st.sampled_from(choices))
            blob = Blob.of(item, HashedPath(namespace, tokens))
            items[blob.name] = (blob, tokens[:end])
    return items


def content_of(items: dict[str, tuple[Blob, Tokens]]) -> Content:
    runs = {
        run.tag: run
        for blob, tokens in items.values()
        for run in runs_back(HashedPath(blob.namespace, tokens), int(tokens.size))
    }
    return Content([blob for blob, _ in items.values()], [*runs.values()])


@given(stored())
@settings(max_examples=60, deadline=None)
def test_every_item_comes_once_on_its_own_path_and_every_path_is_a_leaf(
    items: dict[str, tuple[Blob, Tokens]],
) -> None:
    paths = [*rebuild_branches(content_of(items))]
    names = [blob.name for path in paths for blob in path.blobs]
    assert sorted(names) == sorted(items)
    for path in paths:
        assert all(path.tokens.startswith(items[blob.name][1].tobytes()) for blob in path.blobs)
        assert {blob.namespace for blob in path.blobs} == {path.namespace}
    all_tokens = {(blob.namespace, tokens.tobytes()) for blob, tokens in items.values()}
    leaves = {
        (namespace, tokens)
        for namespace, tokens in all_tokens
        if not any(n == namespace and t != tokens and t.startswith(tokens) for n, t in all_tokens)
    }
    assert sorted((path.namespace, path.tokens) for path in paths) == sorted(leaves)


@given(stored(), st.data())
@settings(max_examples=60, deadline=None)
def test_of_damaged_runs_nothing_wrong_is_recalled(items: dict[str, tuple[Blob, Tokens]], data: st.DataObject) -> None:
    content = content_of(items)
    victim = data.draw(st.integers(0, len(content.runs) - 1))
    content.runs[victim] = damaged(
        content.runs[victim], data.draw(st.sampled_from(["tokens", "start", "parent", "tag"]))
    )
    for path in rebuild_branches(content):
        for blob in path.blobs:
            assert path.tokens.startswith(items[blob.name][1].tobytes())


def damaged(run: TokenRun, field: str) -> TokenRun:
    value = getattr(run, field)
    changed: Any = value + 1 if field == "start" else bytes(value)[:-1] + b"\x99"
    return dataclasses.replace(run, **{field: changed})
