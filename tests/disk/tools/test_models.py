"""Several models share a folder: those that are not open count, and the least valuable gives way."""

import sqlite3
import time
from pathlib import Path

import pytest

from leftoff.blobs import clock
from leftoff.cache.budget import ByteBudget
from leftoff.cache.capacity import Capacity
from leftoff.cache.policy import Limit, ValuePerByte
from leftoff.disk import reply_store
from leftoff.disk.folder import model_folder, note_model
from leftoff.disk.medium import open_folder
from leftoff.disk.tools import models as tools
from leftoff.disk.tools.models import ClosedFolder, models, remove_model
from tests.disk.stores import ARENA, WAIT_S, blob_files, page, path_of, written

FINGERPRINTS = ["aa" * 32, "bb" * 32, "cc" * 32]
NBYTES = 50_000


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With three models, each used an hour after the one before."""
    real = clock.now
    for number, fingerprint in enumerate(FINGERPRINTS):
        with monkeypatch.context() as patch:
            patch.setattr(clock, "now", lambda number=number: real() - 3600 * (3 - number))
            store = open_folder(tmp_path, fingerprint, ARENA, label=f"model {number}")
            written(store, [page(0, 100, NBYTES), page(100, 200, NBYTES)], path_of(200))
            store.close(WAIT_S)
    return tmp_path


def file_bytes(root: Path) -> int:
    return sum(file.stat().st_size for file in blob_files(root))


def make_room(root: Path, nbytes: int) -> Capacity:
    """Opens the last model, and lets it make room on a disk of so many bytes."""
    capacity, own = Capacity(nbytes), model_folder(root, FINGERPRINTS[2])
    budget = ByteBudget("disk", capacity, ValuePerByte(), time.monotonic)
    budget.used_bytes = sum(usage.nbytes for usage in models(root) if usage.path == own)
    capacity.join(budget, *(ClosedFolder(usage.path, capacity) for usage in models(root) if usage.path != own))
    with budget.lock:
        budget.shrink()
    return capacity


def test_models_are_listed_with_their_bytes_the_latest_first(root: Path) -> None:
    listed = models(root)
    assert [usage.label for usage in listed] == ["model 2", "model 1", "model 0"]
    assert [usage.fingerprint for usage in listed] == FINGERPRINTS[::-1]
    assert sum(usage.nbytes for usage in listed) == file_bytes(root)
    assert [(usage.num_blobs, usage.is_in_use, usage.problem) for usage in listed] == [(2, False, "")] * 3
    assert time.time() - listed[0].last_used == pytest.approx(3600, abs=60)


def test_no_models_are_no_problem(tmp_path: Path) -> None:
    assert models(tmp_path / "none") == []


@pytest.mark.parametrize(
    ("budget", "left"), [(10**9, [0, 1, 2]), (3.5, [0, 1, 2]), (2.5, [1, 2]), (1.5, [2]), (0, [2])]
)
def test_the_least_recently_used_go_until_all_fit(root: Path, budget: float, left: list[int]) -> None:
    each = file_bytes(root) // 3
    capacity = make_room(root, int(budget * each))
    assert {usage.label for usage in models(root)} == {f"model {number}" for number in left}
    assert capacity.used_bytes == file_bytes(root)


def test_no_more_blobs_go_than_must(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_BATCH_BYTES", 1)
    each = file_bytes(root) // 3
    make_room(root, int(2.6 * each))
    assert [usage.num_blobs for usage in models(root)] == [2, 2, 1]


def test_a_model_that_reads_slowly_outlasts_one_that_was_used_later(root: Path) -> None:
    note_model(model_folder(root, FINGERPRINTS[0]), root / "slow.gguf", "f", ms_per_token=20.0)
    make_room(root, int(2.5 * file_bytes(root) / 3))
    assert {usage.label for usage in models(root)} == {"model 0", "model 2"}


def test_what_is_in_use_stays(root: Path) -> None:
    store = open_folder(root, FINGERPRINTS[0], ARENA)
    (usage,) = (usage for usage in models(root) if usage.is_in_use)
    assert (usage.label, usage.num_blobs) == ("model 0", 2)
    make_room(root, 0)
    assert {usage.label for usage in models(root)} == {"model 0", "model 2"}
    assert not remove_model(store.medium.path)
    store.close(WAIT_S)
    assert remove_model(store.medium.path)
    assert not store.medium.path.exists()


def test_what_a_newer_leftoff_wrote_stays_and_is_counted(root: Path) -> None:
    newer = model_folder(root, FINGERPRINTS[0])
    with sqlite3.connect(newer / "index.sqlite") as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    each = file_bytes(root) // 3
    assert make_room(root, 0).used_bytes == 2 * each
    (usage,) = (usage for usage in models(root) if usage.path == newer)
    assert usage.nbytes == each
    assert "newer leftoff" in usage.problem


def test_a_folder_without_a_sound_index_is_measured_and_may_go(root: Path) -> None:
    broken = model_folder(root, FINGERPRINTS[1])
    (broken / "index.sqlite").write_bytes(b"nonsense" * 999)
    (usage,) = (usage for usage in models(root) if usage.path == broken)
    assert usage.nbytes == file_bytes(root) // 3
    assert usage.problem
    make_room(root, 0)
    assert not broken.exists()


def test_a_large_folder_without_a_sound_index_goes_as_a_whole(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "_BATCH_BYTES", 1)
    broken = model_folder(root, FINGERPRINTS[1])
    (broken / "index.sqlite").write_bytes(b"nonsense" * 999)
    each = file_bytes(root) // 3
    capacity = make_room(root, int(2.5 * each))
    assert {usage.label for usage in models(root)} == {"model 2", "model 0"}
    assert capacity.used_bytes == file_bytes(root) == 2 * each


def test_who_deletes_is_told_that_replies_could_not_be(root: Path) -> None:
    """They would be found again, though all was said to be deleted."""
    folder = model_folder(root, FINGERPRINTS[0])
    (folder / reply_store.FILE).mkdir()
    with pytest.raises(OSError, match=reply_store.FILE):
        ClosedFolder(folder, Capacity(1 << 30)).forget(lambda _: True)


def test_a_problem_that_has_passed_costs_no_folder(root: Path) -> None:
    folder = model_folder(root, FINGERPRINTS[0])
    index, away = folder / "index.sqlite", folder / "away"
    index.rename(away)
    closed = ClosedFolder(folder, Capacity(1 << 30))
    away.rename(index)
    assert closed.evict_one(Limit(most_bytes=1))
    assert len(blob_files(root)) == 5, "one of the two blobs of this model has gone"
