"""Whatever happens to the disk: the caller's thread sees no exception and no wrong bytes, and the log says it once."""

import os
import random
import shutil
import sqlite3
import struct
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest

from leftoff.blobs.entries import Entry, EntryTable
from leftoff.cache.blob_store import Item, Record
from leftoff.disk.errors import NewerFormatError
from leftoff.disk.files import room_bytes
from leftoff.disk.medium import open_folder
from leftoff.disk.secret import FILE, folder_secret
from leftoff.disk.tools.models import models
from leftoff.engine.errors import BlobError
from tests.disk.stores import (
    ARENA,
    FINGERPRINT,
    WAIT_S,
    DiskStore,
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
from tests.patience import until

Log = pytest.LogCaptureFixture
TOKENS = path_of(3000)


def some_items() -> list[Item]:
    return [page(0, 1000), page(1000, 3000), snapshot(1000), snapshot(3000)]


def works_again(store: DiskStore, namespace: str = "later") -> bool:
    """Puts until one is taken, and reads it back from its file."""
    taken: list[Record] = []

    def try_again() -> bool:
        record = store.put(page(0, 3000), namespace, TOKENS)
        taken[:] = [record] if record else []
        return record is not None and store.flush(WAIT_S) and record not in store.take_lost()

    return until(try_again) and content(read(store, taken[0])) == content(page(0, 3000))


def index_of(root: Path) -> Path:
    (index,) = root.glob("v1/*/index.sqlite")
    return index


# --- blobs


def truncated(blob: bytes) -> bytes:
    return blob[:-1]


def flipped(blob: bytes) -> bytes:
    return blob[:-1] + bytes([blob[-1] ^ 1])


def of_a_newer_format(blob: bytes) -> bytes:
    return blob[:8] + struct.pack("<H", 2) + blob[10:]


def emptied(_blob: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("damage", [truncated, flipped, of_a_newer_format, emptied, None])
def test_a_damaged_blob_is_refused_reported_once_and_removed(tmp_path: Path, caplog: Log, damage: object) -> None:
    with store_in(tmp_path) as store:
        records = written(store, some_items(), TOKENS)
        for file in blob_files(tmp_path):
            if callable(damage):
                file.write_bytes(damage(file.read_bytes()))
            else:
                file.unlink()
        for answer in store.get(records):
            with pytest.raises(BlobError):
                answer.result(WAIT_S)
        assert {record.name for record in store.take_lost()} == {record.name for record in records}
        assert store.take_lost() == []
        assert store.flush(WAIT_S)
        assert blob_files(tmp_path) == []
        assert len(caplog.messages) == 1
        assert "leftoff cache verify" in caplog.text
        assert works_again(store, "")
    with store_in(tmp_path) as store:
        assert len(recalled(store)) == 1


@pytest.mark.parametrize("is_written", [False, True])
def test_what_is_put_anew_while_its_damage_is_met_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    """The engine's thread hears of the damage before the reader has the file removed."""
    lose, anew = EntryTable.lose, list[Record]()

    with store_in(tmp_path) as store:

        def lose_and_put(table: EntryTable, entries: Iterable[Entry]) -> Sequence[Entry]:
            if not (lost := lose(table, entries)):  # the writer's chores
                return lost
            assert store.take_lost() == [record]
            anew.append(put(store, page(0, 1000), TOKENS))
            assert not is_written or store.flush(WAIT_S)
            return lost

        (record,) = written(store, [page(0, 1000)], TOKENS)
        (file,) = blob_files(tmp_path)
        file.write_bytes(flipped(file.read_bytes()))
        with monkeypatch.context() as patch:
            patch.setattr(EntryTable, "lose", lose_and_put)
            with pytest.raises(BlobError):
                read(store, record)
        assert store.flush(WAIT_S)
        assert store.take_lost() == []
        found = read(store, anew[0])
        assert content(found) == content(page(0, 1000))
        assert found.data is not read(store, anew[0]).data, "read from the file, not kept in memory"
    with store_in(tmp_path) as store:
        ((_, place, _),) = recalled(store).values()
        assert content(read(store, record_of(place))) == content(page(0, 1000))


def test_a_blob_in_the_place_of_another_is_refused(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        first, second = written(store, [page(0, 1000), page(1000, 2000)], TOKENS)
        here, there = (next(file for file in blob_files(tmp_path) if file.name == r.name) for r in (first, second))
        there.write_bytes(here.read_bytes())
        with pytest.raises(BlobError, match="other tokens"):
            read(store, second)
        assert content(read(store, first)) == content(page(0, 1000))


def test_what_a_crash_left_is_swept_and_rows_without_files_go(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        records = written(store, some_items(), TOKENS)
    files = blob_files(tmp_path)
    files[0].with_name("0" * 40).write_bytes(b"an orphan")
    files[1].with_name(files[1].name + ".new").write_bytes(b"half a blob")
    files[2].unlink()
    with store_in(tmp_path) as store:
        found = recalled(store)
        assert {*found} == {record.name for record in records} - {files[2].name}
        assert {file.name for file in blob_files(tmp_path)} == {*found}


# --- the index


def garbage(index: Path, rng: random.Random) -> None:
    index.write_bytes(rng.randbytes(8192))


def cut_short(index: Path, rng: random.Random) -> None:
    with index.open("rb+") as file:
        file.truncate(rng.randrange(1, index.stat().st_size))


def emptied_to_nothing(index: Path, _rng: random.Random) -> None:
    index.write_bytes(b"")


def with_a_torn_page(index: Path, rng: random.Random) -> None:
    with index.open("rb+") as file:
        file.seek(rng.randrange(100, index.stat().st_size))
        file.write(rng.randbytes(rng.randrange(1, 600)))


def with_a_changed_token(index: Path, rng: random.Random) -> None:
    """What sqlite cannot see."""
    with sqlite3.connect(index) as connection:
        tag, tokens = connection.execute("SELECT tag, tokens FROM run ORDER BY start LIMIT 1").fetchone()
        position = rng.randrange(len(tokens))
        changed = tokens[:position] + bytes([tokens[position] ^ 1]) + tokens[position + 1 :]
        connection.execute("UPDATE run SET tokens = ? WHERE tag = ?", (changed, tag))
    connection.close()


def with_a_changed_row(index: Path, rng: random.Random) -> None:
    column = rng.choice(["kind = 3 - kind", "start = start + 1", '"end" = "end" + 1', "nbytes = 7", "namespace = 'x'"])
    with sqlite3.connect(index) as connection:
        connection.execute(f"UPDATE blob SET {column}")
    connection.close()


DAMAGES = [
    garbage,
    emptied_to_nothing,
    cut_short,
    with_a_torn_page,
    with_a_changed_token,
    with_a_changed_row,
]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_index_never_gives_wrong_bytes_and_the_store_goes_on(
    tmp_path: Path, damage: object, seed: int
) -> None:
    with store_in(tmp_path) as store:
        items = {record.name: item for item in some_items() for record in written(store, [item], TOKENS)}
    assert callable(damage)
    damage(index_of(tmp_path), random.Random(seed))
    with store_in(tmp_path) as store:
        for name, (kept, place, _) in recalled(store).items():
            assert np.array_equal(kept.tokens, TOKENS[: kept.tokens.size])
            try:
                assert content(read(store, record_of(place))) == content(items[name])
            except BlobError:
                assert record_of(place) in store.take_lost()
        assert works_again(store)
        names = {file.name for file in blob_files(tmp_path)}
    with store_in(tmp_path) as store:
        assert {*recalled(store)} == names, "index and files agree again"


@pytest.mark.parametrize("value", ["NULL", "'x'", "1e999", "x'00'", "-1", "9223372036854775807"])
@pytest.mark.parametrize("column", ["namespace", "tag", '"start"', '"end"', "nbytes", "last_used", "hits"])
def test_an_index_with_tables_of_its_own_is_read_with_care(tmp_path: Path, column: str, value: str) -> None:
    """The same names as ours, and any type in them: a file from elsewhere."""
    with store_in(tmp_path) as store:
        items = {record.name: item for item in some_items()[:2] for record in written(store, [item], TOKENS)}
    with sqlite3.connect(index_of(tmp_path)) as connection:
        connection.executescript(f"""
            CREATE TABLE other AS SELECT * FROM blob; DROP TABLE blob; ALTER TABLE other RENAME TO blob;
            UPDATE blob SET {column} = {value};
            CREATE TABLE others AS SELECT * FROM run; DROP TABLE run; ALTER TABLE others RENAME TO run;
            INSERT INTO run VALUES ({value}, {value}, {value}, {value});
        """)
    connection.close()
    assert len(models(tmp_path)) == 1
    with store_in(tmp_path) as store:
        for name, (kept, place, age_s) in recalled(store).items():
            assert np.array_equal(kept.tokens, TOKENS[: kept.tokens.size])
            assert 0 <= age_s < float("inf")
            assert content(read(store, record_of(place))) == content(items[name])


def test_a_damaged_index_is_set_aside_and_the_log_says_where(tmp_path: Path, caplog: Log) -> None:
    for number in (1, 2, 3, 3):
        with store_in(tmp_path) as store:
            assert recalled(store) == {}
            written(store, some_items(), TOKENS)
        index_of(tmp_path).write_bytes(b"nonsense" * 1000)
        caplog.clear()
        with store_in(tmp_path) as store:
            assert recalled(store) == {}
            assert blob_files(tmp_path) == []
            assert (store.medium.path / f"index.broken-{number}").read_bytes().startswith(b"nonsense")
        assert len(caplog.messages) == 1
        assert str(tmp_path) in caplog.text
        assert f"index.broken-{number}" in caplog.text
    assert len([*tmp_path.glob("v1/*/index.broken-?")]) == 3, "there is a limit to what is kept"


def test_an_index_that_breaks_while_it_is_used_begins_anew(tmp_path: Path, caplog: Log) -> None:
    with store_in(tmp_path) as store:
        records = written(store, some_items(), TOKENS)
        with sqlite3.connect(index_of(tmp_path)) as connection:
            connection.execute("DROP TABLE run")
        connection.close()
        assert works_again(store)
        assert {file.name for file in blob_files(tmp_path)}.isdisjoint(record.name for record in records)
        assert len(caplog.messages) == 2
        assert "is damaged" in caplog.messages[0]
        assert "written again" in caplog.messages[1]


def test_an_index_that_is_emptied_while_it_is_used_gives_no_wrong_bytes(tmp_path: Path) -> None:
    """sqlite goes on with what it remembers of it, or says that it is damaged: either is well."""
    with store_in(tmp_path) as store:
        items = {record.name: item for item in some_items() for record in written(store, [item], TOKENS)}
        index_of(tmp_path).write_bytes(b"")
        assert works_again(store)
    with store_in(tmp_path) as store:
        for name, (_, place, _) in recalled(store).items():
            known = items.get(name, page(0, 3000))
            assert content(read(store, record_of(place))) == content(known)
        assert works_again(store, "after")


def test_an_index_that_is_deleted_while_it_is_used_begins_anew(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        written(store, some_items(), TOKENS)
        index_of(tmp_path).unlink()
        assert works_again(store)
        names = {file.name for file in blob_files(tmp_path)}
    with store_in(tmp_path) as store:
        assert {*recalled(store)} == names
        assert len(names) == 1


def test_the_index_of_a_newer_leftoff_is_left_alone(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        written(store, some_items(), TOKENS)
    with sqlite3.connect(index_of(tmp_path)) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    before = {path: path.read_bytes() for path in [index_of(tmp_path), *blob_files(tmp_path)]}
    with pytest.raises(NewerFormatError, match=rf"{tmp_path}.*format 2.*--cache-dir"), store_in(tmp_path):
        pass
    assert {path: path.read_bytes() for path in [index_of(tmp_path), *blob_files(tmp_path)]} == before


# --- the folder


def test_a_folder_that_vanishes_is_made_again(tmp_path: Path, caplog: Log) -> None:
    root = tmp_path / "cache"
    with store_in(root) as store:
        records = written(store, some_items(), TOKENS)
        shutil.rmtree(root)
        late = put(store, page(0, 2000), TOKENS)
        assert store.flush(WAIT_S)
        assert until(lambda: bool(blob_files(root)) or works_again(store))
        with pytest.raises(BlobError):
            read(store, records[0])
        with pytest.raises(BlobError):
            read(store, late)
        assert ["is gone" in caplog.messages[0], "written again" in caplog.messages[1]] == [True, True]
        assert len(caplog.messages) == 2


def test_a_folder_that_is_made_again_has_the_secret_it_had(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    secret = folder_secret(root)
    with store_in(root) as store:
        written(store, some_items(), TOKENS)
        shutil.rmtree(root)
        assert works_again(store)
    assert (root / FILE).read_bytes() == secret


def test_a_full_disk_pauses_writing_until_there_is_room(
    tmp_path: Path, caplog: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store_in(tmp_path) as store:
        (before,) = written(store, [page(0, 1000)], TOKENS)
        disk = os.statvfs(tmp_path)
        full = os.statvfs_result([*disk[:4], 0, *disk[5:]])
        with monkeypatch.context() as patch:
            patch.setattr(os, "statvfs", lambda _: full)
            late = put(store, page(1000, 3000), TOKENS)
            assert store.flush(WAIT_S)
            assert store.take_lost() == [late]
            assert all(store.put(page(0, n), "", TOKENS) is None for n in range(10, 20))
            assert content(read(store, before)) == content(page(0, 1000)), "reading goes on"
            store.remove(before)
        assert works_again(store)
        assert store.flush(WAIT_S)
        assert len(blob_files(tmp_path)) == 1, "what was removed during the pause is gone"
    assert ["is full" in caplog.messages[0], "--disk" in caplog.messages[0], str(tmp_path) in caplog.text] == [True] * 3
    assert "written again" in caplog.messages[1]
    assert len(caplog.messages) == 2


def test_some_of_the_disk_is_left_to_its_user(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = open_folder(tmp_path, FINGERPRINT, ARENA, reserve_bytes=1 << 60)
    late = put(store, page(0, 1000), TOKENS)
    assert store.flush(WAIT_S)
    assert store.take_lost() == [late]
    assert blob_files(tmp_path) == []
    assert "is full: free some space" in caplog.text
    assert "TiB are left to other programs)" in caplog.text
    store.clear(lambda _: True).result(WAIT_S)  # it needs no room
    store.close(WAIT_S)


def test_a_folder_that_cannot_be_made_is_made_when_it_can(tmp_path: Path, caplog: Log) -> None:
    root = tmp_path / "cache"
    root.write_text("somebody's file")
    with store_in(root) as store:
        assert recalled(store) == {}
        assert store.put(page(0, 1000), "", TOKENS) is None
        assert root.read_text() == "somebody's file"
        root.unlink()
        assert works_again(store)
    assert str(root) in caplog.messages[0]
    assert "--cache-dir" in caplog.messages[0]
    assert len(caplog.messages) == 2


def test_a_folder_that_is_another_s_by_now_stays_the_other_s(tmp_path: Path, caplog: Log) -> None:
    root, moved = tmp_path / "cache", tmp_path / "moved"
    with store_in(root) as store:
        written(store, some_items(), TOKENS)
        root.rename(moved)
        with store_in(root) as other:
            theirs = written(other, some_items(), TOKENS)
            put(store, page(0, 2000), TOKENS)
            assert until(lambda: "in use by another model of this server" in caplog.text)
            assert store.put(page(0, 2000), "", TOKENS) is None
            assert {file.name for file in blob_files(root)} == {record.name for record in theirs}


def test_room_is_what_may_be_written(tmp_path: Path) -> None:
    disk = os.statvfs(tmp_path)
    room, total = room_bytes(tmp_path / "not" / "yet"), disk.f_blocks * disk.f_frsize
    assert 0 <= room <= disk.f_bavail * disk.f_frsize - max(256 << 20, total // 100) + (64 << 20)
