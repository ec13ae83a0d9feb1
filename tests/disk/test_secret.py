"""The secret of a cache folder: one for all, for the user alone, and as lasting as the folder."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from leftoff.disk.secret import FILE, SECRET_BYTES, folder_secret, held_secret, keep_secret


def test_it_is_made_once_and_for_the_user_alone(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    secret = folder_secret(root)
    assert len(secret) == SECRET_BYTES
    assert folder_secret(root) == secret
    assert folder_secret(tmp_path / "another") != secret
    assert [*root.iterdir()] == [root / FILE], "nothing is left of how it was made"
    assert (root / FILE).stat().st_mode & 0o777 == 0o600


def test_all_who_come_first_get_the_same(tmp_path: Path) -> None:
    together = Barrier(8)

    def ask(_: int) -> bytes:
        together.wait()
        return folder_secret(tmp_path)

    with ThreadPoolExecutor(8) as pool:
        assert len({*pool.map(ask, range(8))}) == 1


@pytest.mark.parametrize("content", [b"", b"short", b"x" * (SECRET_BYTES + 1)])
def test_a_damaged_one_is_replaced_and_that_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    (tmp_path / FILE).write_bytes(content)
    secret = folder_secret(tmp_path)
    assert secret == folder_secret(tmp_path) != content
    (said,) = caplog.messages
    assert said.startswith(f"{tmp_path / FILE} was damaged")
    assert "leftoff cache clear" in said


@pytest.mark.parametrize("content", [None, b"short"])
def test_one_that_is_lost_while_it_is_used_is_put_back(tmp_path: Path, content: bytes | None) -> None:
    root = tmp_path / "cache"
    secret = folder_secret(root)
    shutil.rmtree(root)
    if content is not None:
        root.mkdir()
        (root / FILE).write_bytes(content)
    keep_secret(root)
    assert (root / FILE).read_bytes() == secret


def test_where_another_has_taken_its_place_that_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder_secret(tmp_path)
    (tmp_path / FILE).write_bytes(b"x" * SECRET_BYTES)
    for _ in range(2):
        keep_secret(tmp_path)
    (said,) = caplog.messages
    assert "is another one than this server's" in said


def test_where_none_is_used_none_is_made(tmp_path: Path) -> None:
    keep_secret(tmp_path)
    assert not [*tmp_path.iterdir()]


def test_one_that_could_not_be_written_is_written_later(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    root.touch()
    secret = held_secret(root)
    root.unlink()
    assert folder_secret(root) == secret == held_secret(root)


def test_a_copy_that_others_may_read_is_closed_again(tmp_path: Path) -> None:
    secret = folder_secret(tmp_path)
    (tmp_path / FILE).chmod(0o644)
    assert folder_secret(tmp_path) == secret
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_where_none_can_be_made_that_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        folder_secret(tmp_path / "file")
