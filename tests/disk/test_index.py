"""The index of a folder while others read it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from leftoff.disk.index import FILE
from tests.disk.stores import WAIT_S, page, path_of, store_in, written


def test_what_cannot_be_erased_while_another_process_reads_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the index would be set aside, and with it all that other tenants have."""
    monkeypatch.setattr("leftoff.disk.index._BUSY_S", 0.05)
    with store_in(tmp_path) as store:
        for namespace in ("mine/", "yours/"):
            written(store, [page(0, 100)], path_of(100), namespace)
        with closing(sqlite3.connect(store.medium.path / FILE)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT * FROM blob").fetchall()
            with pytest.raises(sqlite3.OperationalError, match="another process reads"):
                store.clear(lambda name: name == "mine/").result(WAIT_S)
        store.clear(lambda name: name == "mine/").result(WAIT_S)
    with store_in(tmp_path) as store:
        assert [path.namespace for path in store.stored_paths()] == ["yours/"]
