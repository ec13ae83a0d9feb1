"""The secret of a cache folder: one for all, for the user alone, and as lasting as the folder."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from leftoff.disk.secret import FILE, SECRET_BYTES, folder_secret


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
def test_a_damaged_one_is_replaced(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    secret = folder_secret(tmp_path)
    assert secret == folder_secret(tmp_path) != content


def test_a_copy_that_others_may_read_is_closed_again(tmp_path: Path) -> None:
    secret = folder_secret(tmp_path)
    (tmp_path / FILE).chmod(0o644)
    assert folder_secret(tmp_path) == secret
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_where_none_can_be_made_that_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        folder_secret(tmp_path / "file")
