"""`leftoff cache --store` on what servers have stored, while they may still run."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from leftoff.cli.main import main
from leftoff.store.tools import ABOUT
from tests.disk.stores import FINGERPRINT, path_of
from tests.store.conftest import Opened, index, opened
from tests.store.parts import Redis
from tests.store.test_medium import stored

__all__ = ["index", "opened"]

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def flags(opened: Opened, index: Redis, tmp_path: Path) -> Iterator[list[str]]:
    """Three blobs of one group, and what it is of."""
    blobs = opened()
    stored(blobs, path_of(400, seed=70))
    group = tmp_path / "store" / FINGERPRINT[:32]
    (group / ABOUT).write_text(f"{FINGERPRINT}\ntiny, KV f16\n")
    yield ["--store", f"file://{tmp_path}/store", "--index", index.url]
    blobs.medium.link.call(blobs.medium.link.index.redis.flushall()).result()  # type: ignore[arg-type]


def test_the_groups_are_listed(flags: list[str], capsys: Capture) -> None:
    assert main(["cache", "list", *flags]) == 0
    shown = capsys.readouterr().out
    assert "tiny, KV f16" in shown
    assert "3 blobs" in shown
    assert main(["cache", "list", "--json", *flags]) == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    assert (group["num_objects"], group["known"]["num_blobs"]) == (3, 3)


def test_damage_and_what_is_missing_are_found_and_removed(flags: list[str], tmp_path: Path, capsys: Capture) -> None:
    assert main(["cache", "verify", *flags]) == 0
    assert "all sound" in capsys.readouterr().out
    (damaged,) = (tmp_path / "store").rglob("*.300.2.300.*")
    damaged.write_bytes(damaged.read_bytes()[:-1])
    (missing,) = (tmp_path / "store").rglob("*.256.1.0.*")
    missing.unlink()
    assert main(["cache", "verify", *flags]) == 1
    shown = capsys.readouterr().out
    assert "2 damaged" in shown
    assert "no such object" in shown
    assert main(["cache", "verify", "--fix", *flags]) == 0
    assert not damaged.exists()
    assert main(["cache", "verify", *flags]) == 0


def test_it_is_pruned_and_cleared(flags: list[str], tmp_path: Path, capsys: Capture) -> None:
    assert main(["cache", "prune", "--older", "1", *flags]) == 0
    assert len([*(tmp_path / "store").rglob("*.*.*")]) == 3, "all of it was used just now"
    assert main(["cache", "prune", "--to", "0.006", *flags]) == 0
    assert len([*(tmp_path / "store").rglob("*.*.*")]) == 1
    assert main(["cache", "clear", *flags]) == 0
    capsys.readouterr()
    assert not [*(tmp_path / "store").rglob("*.*.*")]


def test_what_is_for_the_disk_alone_says_so(flags: list[str], capsys: Capture) -> None:
    assert main(["cache", "show", "abc", *flags]) != 0
    assert "is for the disk" in capsys.readouterr().err
    assert main(["cache", "list", "--store", "file:///tmp/none"]) != 0
    assert "takes --index too" in capsys.readouterr().err
