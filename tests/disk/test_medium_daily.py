"""A limit on what is written in a day: it holds across restarts, and what is stored can be read all the same."""

from pathlib import Path

import pytest

from leftoff.blobs import clock
from leftoff.cache.wear import DAY_S
from leftoff.disk.medium import open_folder
from tests.disk.stores import ARENA, FINGERPRINT, WAIT_S, DiskStore, page, path_of, written
from tests.patience import until

LIMIT = 20_000


def opened(root: Path) -> DiskStore:
    return open_folder(root, FINGERPRINT, ARENA, reserve_bytes=0, retry_s=0.05, daily_bytes=LIMIT)


def test_beyond_the_limit_nothing_is_written_until_a_day_has_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens, began = path_of(400), clock.now()
    store = opened(tmp_path)
    (record, *_) = written(store, [page(0, 10), page(10, 20), page(20, 30)], tokens)
    assert 15_000 < store.written_bytes < LIMIT
    assert store.left_bytes == LIMIT - store.written_bytes
    assert store.put(page(30, 40), "", tokens) is None
    assert store.get([record])[0].result(WAIT_S).nbytes == 5000
    store.close(WAIT_S)
    again = opened(tmp_path)
    assert again.written_bytes == 0
    assert again.put(page(30, 40), "", tokens) is None, "a restart does not begin a new day"
    monkeypatch.setattr(clock, "now", lambda: began + 2 * DAY_S)
    written(again, [page(30, 40)], tokens)
    again.close(WAIT_S)


def test_what_is_removed_while_it_waits_is_not_counted(tmp_path: Path) -> None:
    store = opened(tmp_path)
    store.hold_back(is_busy=True)
    for start in range(0, 300, 10):
        record = store.put(page(start, start + 10), "", path_of(400))
        assert record is not None
        store.remove(record)
    assert store.flush(WAIT_S)
    assert store.written_bytes <= 5000 + store.overhead_bytes
    store.close(WAIT_S)


def test_a_folder_that_can_be_opened_only_later_knows_what_was_written_before(tmp_path: Path) -> None:
    tokens = path_of(400)
    store = opened(tmp_path)
    written(store, [page(0, 10), page(10, 20), page(20, 30)], tokens)
    left_bytes = store.left_bytes
    store.close(WAIT_S)
    (blobs,) = tmp_path.glob("v1/*/blobs")
    aside = blobs.rename(blobs.with_name("aside"))
    blobs.touch()
    again = opened(tmp_path)
    blobs.unlink()
    aside.rename(blobs)
    assert until(lambda: again.put(page(30, 40, nbytes=100), "", tokens) is not None)
    assert again.flush(WAIT_S)
    assert again.left_bytes == left_bytes - again.written_bytes
    again.close(WAIT_S)
