"""A store in a folder is for its user alone, and what is not named as a blob is none."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from leftoff.store.objects import ObjectName, Objects, open_objects


@pytest.fixture(autouse=True)
def _umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


@pytest.mark.parametrize(
    ("mode", "of_folder", "of_file"),
    [(None, 0o700, 0o600), (0o755, 0o700, 0o600), (0o775, 0o770, 0o660)],
    ids=["a new folder", "one that all could read", "one that a group may write to"],
)
def test_a_folder_is_private(tmp_path: Path, mode: int | None, of_folder: int, of_file: int) -> None:
    root = tmp_path / "a store"
    if mode is not None:
        root.mkdir()
        root.chmod(mode)
    objects = Objects(open_objects(f"file://{root}".replace(" ", "%20")))
    for name in ("secret", "group/space/ab/blob"):
        asyncio.run(objects.put_if_absent(name, b"content"))
    assert root.stat().st_mode & 0o777 == of_folder
    for path in root.rglob("*"):
        assert path.stat().st_mode & 0o777 == (of_folder if path.is_dir() else of_file)
    assert (root / "secret").read_bytes() == b"content"


def test_a_name_is_read_only_as_it_is_written() -> None:
    """The index removes a blob by the name that is written: one that reads alike would be found again for ever."""
    name = ObjectName("0123456789abcdef", b"\xaa" * 16, 300, 1, 256, b"\xbb" * 16)
    assert ObjectName.parse(str(name)) == name
    assert ObjectName.parse(str(name).replace("300", "0300")) is None
    assert ObjectName.parse(str(name).upper()) is None
    assert ObjectName.parse(str(name).replace("/bb/", "/bc/")) is None
