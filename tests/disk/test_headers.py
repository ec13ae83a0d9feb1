"""Headers on disk: the last few of each owner, whole, for the user alone."""

import os
from pathlib import Path

import pytest

from leftoff.disk.headers import FOLDER, LEARNED, HeaderFiles


def put(files: HeaderFiles, root: Path, owner: str, content: bytes, second: int) -> None:
    """At a given time: files that are written one after the other may have the same."""
    files.put(owner, content)
    for path in (root / FOLDER).iterdir():
        if path.read_bytes() == content and path.name.startswith(f"{owner}."):
            os.utime(path, (second, second))


def test_the_last_used_comes_first(tmp_path: Path) -> None:
    files = HeaderFiles(tmp_path)
    assert [*files.last()] == []
    for second, content in enumerate((b"a", b"b", b"c", b"a")):
        put(files, tmp_path, "", content, second)
    assert [*files.last("")] == [b"a", b"c", b"b"]
    assert [*HeaderFiles(tmp_path).last()] == [b"a", b"c", b"b"], "also for the next server"


def test_each_owner_has_a_few_of_its_own(tmp_path: Path) -> None:
    files = HeaderFiles(tmp_path)
    put(files, tmp_path, "ann", b"ann's", 0)
    for second in range(1, 30):
        put(files, tmp_path, "bob", f"bob's {second}".encode(), second)
    assert [*files.last("ann")] == [b"ann's"]
    assert [*files.last("bob")] == [f"bob's {second}".encode() for second in range(29, 21, -1)]
    assert len([*files.last()]) == 9
    for number in range(200):
        files.put(f"owner{number}", b"x")
    assert len([*files.last()]) == 128


def test_files_are_for_the_user_alone_and_none_is_left_unfinished(tmp_path: Path) -> None:
    root = tmp_path / "cache"
    HeaderFiles(root).put("ann", b"secret rules")
    HeaderFiles(root).put("ann", b"x" * (2 << 20))  # too large to keep
    (path,) = (root / FOLDER).iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.read_bytes() == b"secret rules"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    files = HeaderFiles(tmp_path)
    files.put("ann", b"own")
    (tmp_path / "other").write_bytes(b"foreign")
    (tmp_path / FOLDER / "ann.0.json").symlink_to(tmp_path / "other")
    assert [*files.last("ann")] == [b"own"]


def test_a_folder_that_cannot_be_written_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FOLDER).write_text("a file")
    files = HeaderFiles(tmp_path)
    for _ in range(3):
        files.put("ann", b"rules")
    assert [*files.last()] == []
    assert len(caplog.records) == 1
    assert FOLDER in caplog.text


def test_what_has_a_name_is_replaced_and_dropped_by_it(tmp_path: Path) -> None:
    files = HeaderFiles(tmp_path, LEARNED, max_per_owner=2, limit=3)
    for name, content in (("a", b"1"), ("b", b"2"), ("a", b"3")):
        files.keep("ann", name, content)
    assert {*files.last("ann")} == {b"2", b"3"}
    files.drop("ann", "a")
    files.drop("ann", "a")
    assert [*HeaderFiles(tmp_path, LEARNED).last()] == [b"2"]
    assert [*HeaderFiles(tmp_path).last()] == [], "these are no headers"
    for number in range(5):
        files.keep("ann", f"n{number}", b"x")
        files.keep("bob", f"n{number}", b"y")
    assert len([*files.last("ann")]) <= 2
    assert len([*files.last()]) == 3


def test_what_another_server_removes_meanwhile_hides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files, folder, scandir = HeaderFiles(tmp_path), tmp_path / FOLDER, os.scandir
    for second, content in enumerate((b"a", b"b", b"c", b"d")):
        put(files, tmp_path, "", content, second)
    latest = files.last()
    assert next(latest) == b"d"
    remove(folder, b"c")
    assert [*latest] == [b"b", b"a"]

    def listed(path: Path) -> list["os.DirEntry[str]"]:
        found = [*scandir(path)]
        remove(folder, b"b")
        return found

    monkeypatch.setattr("leftoff.disk.headers.os.scandir", listed)
    assert [*files.last()] == [b"d", b"a"]
    assert caplog.text == ""


def remove(folder: Path, content: bytes) -> None:
    for path in folder.iterdir():
        if path.read_bytes() == content:
            path.unlink()
