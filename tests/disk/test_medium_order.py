"""A slow disk writes by rank, a full queue gives up the lowest, and the store knows how fast its disk is."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leftoff.cache.blob_store import Rank, Record, Worth
from leftoff.disk.medium import open_folder
from tests.disk.stores import ARENA, FINGERPRINT, WAIT_S, DiskStore, blob_files, page, path_of, snapshot, store_in
from tests.patience import until

SHARED, END, MIDDLE = (Rank(worth, 1.0) for worth in (Worth.SHARED, Worth.END, Worth.MIDDLE))
TOKENS = path_of(1000)
BATCH_ITEMS = 64


@contextmanager
def busy_store(root: Path, *, gives_way: bool) -> Iterator[DiskStore]:
    """A store whose engine is busy all the time."""
    store = open_folder(root, FINGERPRINT, ARENA, reserve_bytes=0, retry_s=60.0, gives_way=gives_way)
    store.hold_back(is_busy=True)
    try:
        yield store
    finally:
        store.close(WAIT_S)


def wait_until_written(store: DiskStore, record: Record) -> None:
    assert until(lambda: not store.is_waiting(record))


def test_the_highest_rank_is_on_the_disk_before_the_others(tmp_path: Path) -> None:
    with busy_store(tmp_path, gives_way=True) as store:
        ranked = {
            rank: [store.put(snapshot(start + n), "", TOKENS, rank) for n in range(BATCH_ITEMS)]
            for rank, start in ((MIDDLE, 100), (END, 300), (SHARED, 500))
        }
        risen = [record for record in ranked[MIDDLE][:10] if record is not None]
        store.promote(risen, SHARED)
        assert all(store.is_waiting(record) for records in ranked.values() for record in records if record is not None)
        assert store.flush(WAIT_S)
        written_at = {file.name: file.stat().st_mtime_ns for file in blob_files(tmp_path)}
    shared, end, middle = (
        [written_at[record.name] for record in ranked[rank] if record is not None and record not in risen]
        for rank in (SHARED, END, MIDDLE)
    )
    assert max(shared) <= max(written_at[record.name] for record in risen) <= max(end) <= max(middle)
    assert min(shared) < min(middle)


def test_a_full_queue_gives_up_what_is_worth_least(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_writing, gate, sync = threading.Event(), threading.Event(), os.fsync

    def slow_sync(fd: int) -> None:
        is_writing.set()
        assert gate.wait(WAIT_S)
        sync(fd)

    with store_in(tmp_path, queue_bytes=50_000) as store:
        monkeypatch.setattr(os, "fsync", slow_sync)
        first = store.put(page(0, 100, nbytes=10_000), "", TOKENS, MIDDLE)
        assert is_writing.wait(WAIT_S)
        kept = [store.put(snapshot(n, nbytes=10_000), "", TOKENS, END) for n in range(200, 202)]
        lost = [store.put(snapshot(n, nbytes=9_000), "", TOKENS, MIDDLE) for n in range(300, 302)]
        assert store.put(snapshot(400, nbytes=10_000), "", TOKENS, MIDDLE) is None, "nothing is worth less"
        assert store.take_lost() == []
        shared = store.put(snapshot(500, nbytes=10_000), "", TOKENS, SHARED)
        assert store.take_lost() == lost, "all that was put together: half of it is of no use"
        assert store.put(snapshot(600, nbytes=20_000), "", TOKENS, END) is None, "only lower ranks give way"
        gate.set()
        assert store.flush(WAIT_S)
        names = {record.name for record in (first, *kept, shared) if record is not None}
        assert {file.name for file in blob_files(tmp_path)} == names
        assert len(names) == 4


def test_with_cores_to_spare_it_writes_while_the_engine_is_busy(tmp_path: Path) -> None:
    with busy_store(tmp_path, gives_way=False) as store:
        record = store.put(page(0, 100), "", TOKENS, END)
        assert record is not None
        wait_until_written(store, record)
        assert [file.name for file in blob_files(tmp_path)] == [record.name]


def test_the_rate_is_measured_on_what_was_left_else_on_what_is_written(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        assert store.medium.bytes_per_ms is None
        for n in range(3):
            assert store.put(page(100 * n, 100 * n + 100, nbytes=4 << 20), "", TOKENS, END)
        assert store.flush(WAIT_S)
        is_one_batch = store.medium.bytes_per_ms is not None  # unless the first was written alone
        assert not is_one_batch or 0 < (store.medium.bytes_per_ms or 0) < 1e9
    with store_in(tmp_path) as store:
        assert store.medium.bytes_per_ms is not None
        assert 0 < store.medium.bytes_per_ms < 1e9
    for file in blob_files(tmp_path):
        file.unlink()
    with store_in(tmp_path) as store:
        assert store.medium.bytes_per_ms is None
