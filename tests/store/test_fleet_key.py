"""The key of a fleet: who can write to the store and the index, and has not the key, forges nothing."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from leftoff.blobs.store import MediumBlobStore
from leftoff.cli.main import main
from leftoff.engine.errors import BlobError
from leftoff.setting import SettingError
from leftoff.store.fleet_key import FleetKey
from leftoff.store.link import Link
from leftoff.store.medium import ObjectMedium, open_store
from leftoff.store.prober import Prober
from leftoff.store.replies import open_index_replies
from leftoff.store.tools import verify_group
from tests.disk.stores import ARENA, FINGERPRINT, path_of
from tests.patience import PATIENCE_S
from tests.store.parts import Redis
from tests.store.test_medium import ITEMS, fetched, found, stored

OURS, THEIRS = FleetKey(b"a key of ours, long enough for all"), FleetKey(b"another key, that nobody of us has")


@contextmanager
def opened(root: Path, index: Redis, key: FleetKey | None) -> Iterator[MediumBlobStore[ObjectMedium]]:
    """The store as a server with this key opens it, but that all of them look into the same group."""
    with closing(Link(f"file://{root}", index.url, FINGERPRINT)) as link:
        blobs = open_store(link, Prober(link), FINGERPRINT, ARENA, queue_bytes=1 << 20, key=key)
        yield blobs
        blobs.close(PATIENCE_S)


def test_a_blob_of_the_fleet_comes_back(tmp_path: Path, index: Redis) -> None:
    tokens = path_of(400, seed=1)
    with opened(tmp_path, index, OURS) as one:
        stored(one, tokens)
    with opened(tmp_path, index, OURS) as other:
        path = found(other, tokens)
        assert path is not None
        assert len(fetched(other, path)) == len(ITEMS)
        link = other.medium.link
        findings = link.call(verify_group(link, FINGERPRINT, OURS, fix=False)).result()
        assert (findings.num_blobs, findings.faults) == (len(ITEMS), [])


@pytest.mark.parametrize("key", [None, THEIRS], ids=["without a key", "with another key"])
def test_a_blob_that_was_forged_is_not_loaded(tmp_path: Path, index: Redis, key: FleetKey | None) -> None:
    """Its checksum is right, as who can write to the store can compute it."""
    tokens = path_of(400, seed=2)
    with opened(tmp_path, index, key) as forger:
        stored(forger, tokens)
    with opened(tmp_path, index, OURS) as victim:
        path = found(victim, tokens)
        assert path is not None
        with pytest.raises(BlobError):
            fetched(victim, path)


@pytest.mark.parametrize("key", [None, THEIRS], ids=["without a key", "with another key"])
def test_a_reply_that_was_forged_is_not_taken(tmp_path: Path, index: Redis, key: FleetKey | None) -> None:
    name = b"k" * 32
    with opened(tmp_path, index, OURS) as blobs:
        link = blobs.medium.link
        forger = open_index_replies(link, FINGERPRINT, key=key)
        forger.put(name, "", b"forged")
        forger.close()
        assert open_index_replies(link, FINGERPRINT, key=OURS).get([name]) == {}
        own = open_index_replies(link, FINGERPRINT, key=OURS)
        own.put(name, "", b"own")
        own.close()
        assert open_index_replies(link, FINGERPRINT, key=OURS).get([name]) == {name: b"own"}


def test_a_mac_holds_for_one_name_and_one_value() -> None:
    content = OURS.sealed(b"name", b"value")
    assert OURS.opened(b"name", content) == b"value"
    assert OURS.opened(b"other", content) is None
    assert OURS.opened(b"name", content[:-1] + b"!") is None
    assert OURS.opened(b"name", b"value") is None
    assert THEIRS.opened(b"name", content) is None
    assert OURS.fingerprint(FINGERPRINT) != THEIRS.fingerprint(FINGERPRINT) != FINGERPRINT


def test_a_key_is_made_once_for_the_user_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "fleet.key"
    assert main(["cluster", "key", str(path)]) == 0
    assert path.stat().st_mode & 0o777 == 0o600
    assert f"--fleet-key {path}" in capsys.readouterr().out
    assert FleetKey.read(path).id == FleetKey.read(path).id
    before = path.read_text()
    assert main(["cluster", "key", str(path)]) == 1
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("content", "mode", "told"),
    [(None, 0, "leftoff cluster key"), ("k" * 64, 0o644, "chmod 600"), ("short", 0o600, "32 are needed")],
)
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, content: str | None, mode: int, told: str) -> None:
    path = tmp_path / "fleet.key"
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    with pytest.raises(SettingError, match=told):
        FleetKey.read(path)
