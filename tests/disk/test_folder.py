"""A cache folder that somebody else has prepared: nothing outside of it is read, written or removed."""

import os
import stat
from pathlib import Path

import pytest

from leftoff.cli.main import main
from leftoff.disk.errors import FolderError
from leftoff.disk.folder import BLOBS, model_folder
from leftoff.disk.tools.models import models
from tests.disk.stores import FINGERPRINT, page, path_of, store_in, written

TOKENS = path_of(1000)


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """Files that look as if they were ours to remove."""
    folder = tmp_path / "theirs"
    (folder / BLOBS / "aa").mkdir(parents=True)
    (folder / BLOBS / "aa" / "important").write_text("keep")
    (folder / "aa").mkdir()
    (folder / "aa" / "important").write_text("keep")
    return folder


def is_untouched(theirs: Path) -> bool:
    files = sorted(path for path in theirs.rglob("*") if path.is_file())
    return files == [theirs / "aa" / "important", theirs / BLOBS / "aa" / "important"] and all(
        file.read_text() == "keep" for file in files
    )


def test_a_folder_of_a_model_that_is_a_link_is_refused_and_what_it_leads_to_stays(
    tmp_path: Path, theirs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "cache"
    link = model_folder(root, FINGERPRINT)
    link.parent.mkdir(parents=True)
    link.symlink_to(theirs)
    with pytest.raises(FolderError, match="is a link to"), store_in(root):
        pass
    assert models(root) == []
    for action in (("clear",), ("verify", "--fix"), ("prune", "--to", "0")):
        assert main(["cache", action[0], "--cache-dir", str(root), *action[1:]]) == 0
    capsys.readouterr()
    assert is_untouched(theirs)


def test_blobs_behind_a_link_are_refused_and_stay(tmp_path: Path, theirs: Path) -> None:
    """Whatever lies where blobs lie and is not in the index is removed at the start."""
    root = tmp_path / "cache"
    folder = model_folder(root, FINGERPRINT)
    folder.mkdir(parents=True)
    (folder / BLOBS).symlink_to(theirs)
    with pytest.raises(FolderError, match="is a link to"), store_in(root):
        pass
    main(["cache", "clear", "--cache-dir", str(root)])
    assert is_untouched(theirs)


@pytest.mark.parametrize("name", ["lock", "index.sqlite"])
def test_a_file_behind_a_link_is_not_written(tmp_path: Path, name: str) -> None:
    root, secret = tmp_path / "cache", tmp_path / "secret"
    secret.write_text("keep")
    folder = model_folder(root, FINGERPRINT)
    folder.mkdir(parents=True)
    (folder / name).symlink_to(secret)
    with store_in(root) as store:
        assert store.put(page(0, 1000), "", TOKENS) is None
    assert secret.read_text() == "keep"


def test_a_folder_that_everybody_can_write_is_refused(tmp_path: Path) -> None:
    with store_in(tmp_path) as store:
        written(store, [page(0, 1000)], TOKENS)
    folder = model_folder(tmp_path, FINGERPRINT)
    folder.chmod(0o777)
    with pytest.raises(FolderError, match="can be written by everybody: chmod o-w"), store_in(tmp_path):
        pass
    folder.chmod(0o700)
    with store_in(tmp_path):
        pass


def test_a_folder_of_another_user_is_refused_but_not_for_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with store_in(tmp_path) as store:
        written(store, [page(0, 1000)], TOKENS)
    owner = model_folder(tmp_path, FINGERPRINT).stat().st_uid
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    with pytest.raises(FolderError, match="belongs to another user"), store_in(tmp_path):
        pass
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    with store_in(tmp_path):
        pass


def test_nobody_else_can_read_what_is_kept(tmp_path: Path) -> None:
    with store_in(tmp_path / "cache") as store:
        written(store, [page(0, 1000)], TOKENS)
        for path in (tmp_path / "cache").rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
