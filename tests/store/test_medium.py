"""Two machines over one store, with a real Redis: what one has stored the other finds, verified or not at all."""

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from leftoff.blobs.entries import Entry
from leftoff.blobs.medium import GoneError
from leftoff.cache.blob_store import Item, Rank, Record, StoredPath, Wanted, Worth
from leftoff.engine.errors import BlobError
from leftoff.engine.memory.arena import view_of
from leftoff.store.objects import Listed
from leftoff.types import Tokens
from tests.disk.stores import ARENA, page, path_of, snapshot
from tests.patience import PATIENCE_S, until
from tests.store.conftest import Opened, SharedBlobs
from tests.store.parts import Redis

ITEMS: list[Item] = [page(0, 256), page(256, 300), snapshot(300)]


def stored(blobs: SharedBlobs, tokens: Tokens, items: Sequence[Item] = ITEMS, namespace: str = "") -> list[Record]:
    records = [blobs.put(item, namespace, tokens, Rank(Worth.END, 1.0)) for item in items]
    assert blobs.flush(PATIENCE_S)
    return [record for record in records if record is not None]


def found(blobs: SharedBlobs, tokens: Tokens, namespace: str = "", known: int = 0) -> StoredPath | None:
    return blobs.search(Wanted(namespace, tokens, known)).result(PATIENCE_S)


def fetched(blobs: SharedBlobs, path: StoredPath) -> list[bytes]:
    records = [item.data for item in path.items if isinstance(item.data, Record)]
    return [view_of(future.result(PATIENCE_S).data).tobytes() for future in blobs.get(records)]


def test_what_one_machine_stores_another_finds_and_loads(opened: Opened) -> None:
    tokens = path_of(400, seed=1)
    stored(opened(), tokens)
    other = opened()
    path = found(other, tokens)
    assert path is not None
    assert [type(item).__name__ for item in path.items] == ["Page", "Page", "Snapshot"]
    assert np.array_equal(path.tokens, tokens[:300])
    assert fetched(other, path) == [view_of(item.data).tobytes() for item in ITEMS]
    assert other.medium.call_ms is not None


def test_only_what_is_not_here_is_looked_for(opened: Opened) -> None:
    tokens = path_of(400, seed=2)
    blobs = opened()
    stored(blobs, tokens)
    path = found(blobs, tokens, known=256)
    assert path is not None
    assert len(path.items) == 2
    assert found(blobs, tokens, known=300) is None
    assert found(blobs, path_of(400, seed=3)) is None


def test_tenants_and_fingerprints_share_nothing(opened: Opened) -> None:
    tokens = path_of(400, seed=4)
    stored(opened(), tokens, namespace="one/")
    assert found(opened(), tokens, namespace="two/") is None
    assert found(opened(), tokens) is None
    assert found(opened("cd" * 32), tokens, namespace="one/") is None
    assert found(opened(), tokens, namespace="one/") is not None


def test_what_another_machine_has_stored_meanwhile_is_no_failed_write_any_more(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it was stored, and the answer of the store lost: nothing is left to write that would show so."""
    tokens, one, other = path_of(400, seed=66), opened(), opened()

    async def lost(*_: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(one.medium.link.objects, "put", lost)
    monkeypatch.setattr("leftoff.store.medium._RETRY_S", 0.1)
    writes = one.medium.link.writes
    one.put(ITEMS[0], "", tokens, Rank(Worth.END, 1.0))
    assert until(lambda: writes.is_failing)
    stored(other, tokens)
    assert until(lambda: not writes.is_failing)


def test_two_writers_of_one_blob_agree(opened: Opened) -> None:
    tokens, one, other = path_of(400, seed=5), opened(), opened()
    for item in ITEMS:
        one.put(item, "", tokens)
        other.put(item, "", tokens)
    assert one.flush(PATIENCE_S)
    assert other.flush(PATIENCE_S)
    path = found(one, tokens)
    assert path is not None
    assert len(path.items) == 3
    assert len(fetched(one, path)) == 3


def test_a_damaged_blob_is_never_delivered_and_can_be_stored_again(opened: Opened, tmp_path: Path) -> None:
    tokens, blobs = path_of(400, seed=6), opened()
    stored(blobs, tokens)
    (file,) = (tmp_path / "store").rglob("*.300.2.300.*")
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    path = found(blobs, tokens)
    assert path is not None
    with pytest.raises(BlobError, match="damaged"):
        fetched(blobs, path)
    assert until(lambda: not file.exists())
    assert until(lambda: (again := found(blobs, tokens)) is not None and len(again.items) == 2)
    stored(blobs, tokens, ITEMS[2:])
    other = opened()
    again = found(other, tokens)
    assert again is not None
    assert len(fetched(other, again)) == 3


def test_a_blob_that_is_gone_is_a_miss_and_is_said(
    opened: Opened, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokens, blobs = path_of(400, seed=7), opened()
    stored(blobs, tokens)
    path = found(blobs, tokens)
    assert path is not None
    for file in (tmp_path / "store").rglob("*.300.2.300.*"):
        file.unlink()
    for _ in range(2):
        with pytest.raises(BlobError, match="not stored any more"):
            fetched(blobs, path)
    assert caplog.text.count("the store lacks what the index names") == 1
    assert until(lambda: (again := found(blobs, tokens)) is not None and len(again.items) == 2)


def test_a_blob_that_was_gone_and_is_stored_again_stays(opened: Opened, tmp_path: Path) -> None:
    tokens, blobs = path_of(400, seed=8), opened()
    record = stored(blobs, tokens)[2]
    assert isinstance(record, Entry)
    (file,) = (tmp_path / "store").rglob("*.300.2.300.*")
    content = file.read_bytes()
    file.unlink()
    with pytest.raises(GoneError):
        blobs.medium.read(record.blob, ARENA)
    file.write_bytes(content)  # by another machine, before this one has told the index
    blobs.medium.remove([record.blob])
    assert file.exists()
    again = found(opened(), tokens)
    assert again is not None
    assert len(again.items) == 3


def test_once_the_link_is_closed_nothing_is_found(opened: Opened, caplog: pytest.LogCaptureFixture) -> None:
    blobs = opened()
    blobs.medium.link.close()
    assert found(blobs, path_of(400, seed=9)) is None
    assert caplog.text == ""


def test_what_waits_is_not_written_once_it_is_released(opened: Opened, index: Redis) -> None:
    tokens, blobs = path_of(400, seed=10), opened()
    index.freeze()
    try:
        record = blobs.put(ITEMS[0], "", tokens)
        others = [blobs.put(page(0, 9, seed=seed), "", path_of(20, seed=100 + seed)) for seed in range(20)]
        last = others[-1]
        assert record is not None
        assert last is not None
        assert blobs.is_waiting(last)
        blobs.release(last)
    finally:
        index.thaw()
    assert until(lambda: not blobs.is_waiting(record))
    assert found(blobs, tokens) is not None
    assert found(blobs, path_of(20, seed=119)) is None


def test_a_namespace_is_removed_whoever_has_stored_it(opened: Opened, tmp_path: Path) -> None:
    tokens, blobs = path_of(400, seed=11), opened()
    stored(opened(), tokens, namespace="mine/")
    stored(opened(), tokens, namespace="yours/")
    blobs.clear(lambda name: name == "mine/")
    assert until(lambda: found(blobs, tokens, "mine/") is None)
    assert found(blobs, tokens, "yours/") is not None
    assert until(lambda: len([*(tmp_path / "store").rglob("*.300.2.300.*")]) == 1)


def names(folder: Path) -> list[str]:
    """The namespaces whose names are in the store."""
    return sorted(file.read_text() for file in (folder / "store").glob("*/*/name"))


def test_a_namespace_that_was_removed_has_its_name_again_when_more_of_it_is_stored(
    opened: Opened, tmp_path: Path
) -> None:
    one, other = opened(), opened()
    stored(one, path_of(400, seed=12), namespace="mine/")
    assert names(tmp_path) == ["mine/"]
    other.clear(lambda name: name == "mine/").result(PATIENCE_S)
    assert names(tmp_path) == []
    stored(one, path_of(400, seed=13), namespace="mine/")
    assert names(tmp_path) == ["mine/"]


def test_what_is_stored_while_its_namespace_is_removed_is_removed_too(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = opened(), opened()
    objects, seeds = one.medium.link.objects, iter((15, 16))
    listed, delete = objects.listed, objects.delete

    def store_more() -> None:
        if (seed := next(seeds, None)) is not None:
            stored(other, path_of(400, seed=seed), namespace="mine/")

    async def listed_and_stored(prefix: str) -> AsyncIterator[list[Listed]]:
        async for chunk in listed(prefix):
            yield chunk
        store_more()

    async def deleted_and_stored(objects: Sequence[str]) -> None:
        await delete(objects)
        if any(each.endswith("/name") for each in objects):
            store_more()

    monkeypatch.setattr(objects, "listed", listed_and_stored)
    monkeypatch.setattr(objects, "delete", deleted_and_stored)
    stored(other, path_of(400, seed=14), namespace="mine/")
    one.clear(lambda name: name == "mine/").result(PATIENCE_S)
    assert next(seeds, None) is None
    assert [*(tmp_path / "store").rglob("*.300.2.300.*")] == []
    assert [found(other, path_of(400, seed=seed), "mine/") for seed in (14, 15, 16)] == [None] * 3
