"""What is put into the store comes back bit for bit: from memory, from files, and in the next process."""

import stat
from pathlib import Path

import numpy as np
import pytest

from leftoff.blobs import clock
from leftoff.cache.blob_store import BlobStore, Item
from leftoff.disk.medium import open_folder
from leftoff.engine.errors import BlobError
from leftoff.engine.seal import span_of
from tests.disk.stores import (
    ARENA,
    FINGERPRINT,
    WAIT_S,
    blob_files,
    content,
    page,
    path_of,
    put,
    read,
    recalled,
    record_of,
    snapshot,
    store_in,
    written,
)


def test_it_is_a_blob_store(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        protocol: BlobStore = store
        assert protocol.overhead_bytes > 0


def test_items_come_back_bit_for_bit_before_and_after_they_are_written(tmp_path: Path) -> None:
    tokens = path_of(3000)
    items: list[Item] = [page(0, 900), page(900, 2500), snapshot(2500), page(2500, 3000, nbytes=3 << 20)]
    with store_in(tmp_path) as store:
        records = [put(store, item, tokens) for item in items]
        assert [content(read(store, record)) for record in records] == [*map(content, items)]
        assert store.flush(WAIT_S)
        found = [read(store, record) for record in records]
        assert [*map(content, found)] == [*map(content, items)]
        assert all(new.data is not old.data for new, old in zip(found, items, strict=True)), "read from the files"


def test_a_record_says_its_bytes_on_disk(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        items = [page(0, 100, nbytes=n) for n in (1, 4096, 100_000)]
        records = [written(store, [item], path_of(100, seed), "")[0] for seed, item in enumerate(items)]
        assert sum(record.nbytes for record in records) == sum(file.stat().st_size for file in blob_files(tmp_path))
        assert [r.nbytes - i.nbytes for r, i in zip(records, items, strict=True)] == [store.overhead_bytes] * 3


def test_the_next_process_knows_every_path_without_reading_a_file(tmp_path: Path) -> None:
    tokens, fork = path_of(5000), path_of(5000)
    fork[2000:] = path_of(3000, seed=1)
    items: list[Item] = [page(0, 2000), snapshot(2000), page(2000, 4100), snapshot(4100)]
    forked: list[Item] = [page(2000, 5000), snapshot(5000)]
    with store_in(tmp_path) as store:
        names = [record.name for record in (*written(store, items, tokens), *written(store, forked, fork))]
    blobs = {file: file.read_bytes() for file in blob_files(tmp_path)}
    for file in blobs:
        file.write_bytes(b"not to be read")
    with store_in(tmp_path) as store:
        found = recalled(store)
        assert {*found} == {*names}
        paths = {kept.tokens.tobytes() for kept, _, _ in found.values()}
        assert paths == {tokens[:4100].tobytes(), fork.tobytes()}
        for file, blob in blobs.items():
            file.write_bytes(blob)
        for name, item in zip(names, [*items, *forked], strict=True):
            kept, place, _ = found[name]
            assert content(read(store, record_of(place))) == content(item)
            end = span_of(item)[1]
            assert np.array_equal(kept.tokens[:end], (tokens if item in items else fork)[:end])


def test_what_is_on_one_path_comes_together_rising_by_position(tmp_path: Path) -> None:
    tokens = path_of(4000)
    items: list[Item] = [
        snapshot(3000),
        page(1500, 3000),
        snapshot(1024),
        page(0, 1024),
        page(1024, 1500),
        snapshot(100),
    ]
    with store_in(tmp_path) as store:
        written(store, items, tokens)
    with store_in(tmp_path) as store:
        (kept,) = store.stored_paths()
        assert [span_of(item)[1] for item in kept.items] == [100, 1024, 1024, 1500, 3000, 3000]
        assert np.array_equal(kept.tokens, tokens[:3000])


def test_namespaces_share_nothing(tmp_path: Path) -> None:
    tokens = path_of(1500)
    with store_in(tmp_path) as store:
        mine, yours = (written(store, [page(0, 1500, seed=n)], tokens, f"tenant {n}")[0] for n in range(2))
        assert mine.name != yours.name
    with store_in(tmp_path) as store:
        found = recalled(store)
        assert [found[record.name][0].namespace for record in (mine, yours)] == ["tenant 0", "tenant 1"]
        items = [read(store, record_of(found[record.name][1])) for record in (mine, yours)]
        assert [*map(content, items)] == [content(page(0, 1500, seed=n)) for n in range(2)]


def test_an_item_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    tokens = path_of(500)
    with store_in(tmp_path) as store:
        (record,) = written(store, [page(0, 500)], tokens)
        before = blob_files(tmp_path)[0].stat()
        assert put(store, page(0, 500), tokens) is record
        assert store.flush(WAIT_S)
        (file,) = blob_files(tmp_path)
        assert file.stat().st_ino == before.st_ino
    with store_in(tmp_path) as store:
        (kept,) = store.stored_paths()
        assert put(store, page(0, 500), tokens) is record_of(kept.items[0])


def test_what_was_removed_is_gone_and_may_come_again(tmp_path: Path) -> None:
    tokens = path_of(500)
    with store_in(tmp_path) as store:
        first = put(store, page(0, 500), tokens)
        store.remove(first)
        second = put(store, page(0, 500), tokens)
        store.remove(first)
        assert content(read(store, second)) == content(page(0, 500)), "an old record removes nothing new"
        assert store.flush(WAIT_S)
        assert content(read(store, second)) == content(page(0, 500))
        store.remove(second)
        assert store.flush(WAIT_S)
        assert blob_files(tmp_path) == []
        with pytest.raises(BlobError, match="not stored any more"):
            read(store, second)
        assert store.take_lost() == []
    with store_in(tmp_path) as store:
        assert recalled(store) == {}


def test_ages_are_told_by_the_clock_on_the_wall_and_never_negative(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = clock.now
    with store_in(tmp_path) as store:
        monkeypatch.setattr(clock, "now", lambda: real() - 1000)
        old, used = written(store, [page(0, 100), page(100, 200)], path_of(200))
        monkeypatch.setattr(clock, "now", lambda: real() - 500)
        store.record_hits([used])
    monkeypatch.setattr(clock, "now", real)
    with store_in(tmp_path) as store:
        found = recalled(store)
        assert found[old.name][2] == pytest.approx(1000, abs=60)
        assert found[used.name][2] == pytest.approx(500, abs=60)
    monkeypatch.setattr(clock, "now", lambda: real() - 5000)
    with store_in(tmp_path) as store:
        assert all(0 <= age_s < 60 for _, _, age_s in recalled(store).values()), "the clock was set back"


def test_a_queue_that_is_full_takes_nothing_more(tmp_path: Path) -> None:
    tokens = path_of(100)
    with store_in(tmp_path, queue_bytes=20_000) as store:
        taken = [store.put(page(0, 100, nbytes=15_000, seed=n), f"{n}", tokens) for n in range(50)]
        assert taken[0] is not None
        assert None in taken, "fifty are put faster than they are written"
        assert store.flush(WAIT_S)
        assert store.put(page(0, 100, nbytes=15_000), "later", tokens) is not None
        assert store.flush(WAIT_S)
        huge = put(store, page(0, 100, nbytes=100_000), tokens, "huge")
        assert store.flush(WAIT_S)
        assert read(store, huge).nbytes == 100_000, "an item larger than the queue has its turn alone"


def test_closing_writes_what_is_waiting(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        names = {put(store, snapshot(n), path_of(300)).name for n in range(100, 300)}
    with store_in(tmp_path) as store:
        assert {*recalled(store)} == names


def test_only_the_user_may_look(tmp_path: Path) -> None:
    root = tmp_path / "new" / "cache"
    with store_in(root) as store:
        written(store, [page(0, 100)], path_of(100))
        paths = [root, *root.rglob("*")]
        modes = {path.relative_to(root): stat.S_IMODE(path.stat().st_mode) for path in paths}
        assert {modes[path.relative_to(root)] for path in paths if path.is_dir()} == {0o700}
        assert {modes[path.relative_to(root)] for path in paths if path.is_file()} == {0o600}
        assert len(paths) >= 7


def test_models_do_not_see_each_other(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        written(store, [page(0, 100)], path_of(100))
        other = open_folder(tmp_path, "cd" * 32, ARENA)
        assert [*other.stored_paths()] == []
        other.close(WAIT_S)
        assert FINGERPRINT[:16] in str(store.medium.path)


def test_tokens_that_nothing_lies_on_leave_the_index(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        tokens = path_of(100_000)
        keep, go = written(store, [snapshot(1000), snapshot(100_000)], tokens)
        store.remove(go)
    size = (store.medium.path / "index.sqlite").stat().st_size
    assert size < tokens.nbytes / 2
    with store_in(tmp_path) as store:
        assert {*recalled(store)} == {keep.name}


def test_no_file_stays_open(tmp_path: Path) -> None:
    def num_open() -> int:
        return len([*Path("/dev/fd").iterdir()])

    before = num_open()
    for _ in range(3):
        with store_in(tmp_path) as store:
            for kept in store.stored_paths():
                for item in kept.items:
                    read(store, record_of(item))
            written(store, [page(0, 100), snapshot(100)], path_of(100))
    assert num_open() == before


def test_what_is_removed_before_it_was_written_never_is(tmp_path: Path) -> None:
    """Else a tier that evicts faster than the disk writes would fill the memory with what nobody wants."""
    store = open_folder(tmp_path, FINGERPRINT, ARENA, reserve_bytes=0, retry_s=60.0)
    store.hold_back(is_busy=True)
    tokens, lent_bytes = path_of(1000), ARENA.lent_bytes
    kept = put(store, page(0, 500), tokens)
    for position in range(501, 1000):
        store.remove(put(store, snapshot(position), tokens))
    assert ARENA.lent_bytes - lent_bytes < 3 * 5000, "of the one that stays"
    assert store.flush(WAIT_S)
    assert [file.name for file in blob_files(tmp_path)] == [kept.name]
    store.close(WAIT_S)
