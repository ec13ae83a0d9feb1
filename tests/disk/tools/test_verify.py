"""What is damaged is found, and goes only where nobody else uses the folder."""

from pathlib import Path

import pytest

from leftoff.disk.errors import FolderBusyError, FolderError
from leftoff.disk.medium import open_folder
from leftoff.disk.tools.models import models
from leftoff.disk.tools.verify import remove_faults, verify_folder
from tests.disk.stores import ARENA, FINGERPRINT, blob_files, page, path_of, recalled, snapshot, store_in, written

TOKENS = path_of(2000)


def test_what_is_sound_is_counted_to_the_byte(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        written(store, [page(0, 1000), page(1000, 2000), snapshot(2000)], TOKENS)
        findings = verify_folder(store.medium.path)
    assert (findings.num_blobs, findings.faults, findings.note) == (3, [], "")
    assert findings.nbytes == sum(file.stat().st_size for file in blob_files(tmp_path))


def test_progress_is_told_up_to_the_end(tmp_path: Path) -> None:
    told: list[float] = []
    with store_in(tmp_path) as store:
        written(store, [page(0, 1000), snapshot(1000)], TOKENS)
        verify_folder(store.medium.path, told.append)
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_nothing_goes_while_a_server_uses_the_folder(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        written(store, [page(0, 1000), snapshot(1000)], TOKENS)
    (file, other) = blob_files(tmp_path)
    file.write_bytes(b"damaged")
    with store_in(tmp_path) as store:
        recalled(store)
        (usage,) = models(tmp_path)
        findings = verify_folder(store.medium.path)
        assert [fault.name for fault in findings.faults] == [file.name]
        with pytest.raises(FolderBusyError):
            remove_faults(usage, findings.faults)
        (store.medium.path / "index.sqlite").write_bytes(b"nonsense" * 1000)
        with pytest.raises(FolderBusyError):
            remove_faults(usage, verify_folder(store.medium.path).faults)
        assert blob_files(tmp_path) == [file, other]


def test_a_folder_without_an_index_has_nothing_to_check(tmp_path: Path) -> None:
    findings = verify_folder(tmp_path)
    assert findings.faults == []
    assert str(tmp_path) in findings.note


def test_a_folder_is_never_taken_for_that_of_a_model_whose_name_begins_alike(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        written(store, [page(0, 1000)], TOKENS)
    with pytest.raises(FolderError, match="of another model"):
        open_folder(tmp_path, FINGERPRINT[:16] + "cd" * 24, ARENA)
    with store_in(tmp_path) as store:
        assert len(recalled(store)) == 1


def test_an_index_that_was_only_just_made_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "index.sqlite").touch()
    findings = verify_folder(tmp_path)
    assert findings.faults == []
    assert "is empty" in findings.note
