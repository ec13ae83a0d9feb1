"""Replicas on one node have a cache folder each, and find it again after a restart."""

from contextlib import closing
from pathlib import Path

import pytest

from leftoff.cluster.own_folder import OwnFolder


def test_two_on_one_node_have_two_folders(tmp_path: Path) -> None:
    flags = ["--alias", "two words", "--cache-dir", str(tmp_path)]
    first = OwnFolder(flags)
    with closing(OwnFolder(flags)) as second:
        assert [each.path for each in (first, second)] == [tmp_path / "replica-0", tmp_path / "replica-1"]
        first.close()
        with closing(OwnFolder(flags)) as again:
            assert again.path == first.path, "what it has kept is there for the next one"


def test_the_folder_may_come_from_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEFTOFF_CACHE_DIR", str(tmp_path))
    with closing(OwnFolder([])) as folder:
        assert folder.path == tmp_path / "replica-0"
