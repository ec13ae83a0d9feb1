"""Embeddings of pictures on disk: verified when they are read, and within a limit of bytes."""

import os
from pathlib import Path

import pytest

from leftoff.disk.picture_files import FOLDER, PictureFiles

KEYS = [bytes([number]) * 32 for number in range(4)]


def test_what_was_put_comes_back_to_its_owner_alone(tmp_path: Path) -> None:
    files = PictureFiles(tmp_path, 1000)
    assert files.get("ann", KEYS[0]) is None
    files.put("ann", KEYS[0], b"content")
    assert files.get("ann", KEYS[0]) == b"content"
    assert files.get("bob", KEYS[0]) is None
    assert PictureFiles(tmp_path, 1000).get("ann", KEYS[0]) == b"content"


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    files = PictureFiles(tmp_path, 400)
    for number, key in enumerate(KEYS[:3]):
        files.put("", key, bytes(100))
        os.utime(next((tmp_path / FOLDER).glob(f"*{key.hex()}*")), (number, number))
    assert files.get("", KEYS[0]) is not None  # used again
    files.put("", KEYS[3], bytes(100))
    assert [files.get("", key) is not None for key in KEYS] == [True, False, True, True]
    files.put("", KEYS[1], bytes(1000))
    assert files.get("", KEYS[1]) is None, "larger than all that may be kept"


def test_what_is_damaged_is_not_given(tmp_path: Path) -> None:
    files = PictureFiles(tmp_path, 1000)
    files.put("", KEYS[0], b"content")
    (file,) = (tmp_path / FOLDER).iterdir()
    file.write_bytes(file.read_bytes().replace(b"content", b"contenT"))
    assert files.get("", KEYS[0]) is None
    assert not file.exists()


def test_a_failing_disk_raises_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FOLDER).write_text("no folder")
    files = PictureFiles(tmp_path, 1000)
    files.put("", KEYS[0], b"content")
    assert files.get("", KEYS[0]) is None
    assert "pictures are not kept" in caplog.text
