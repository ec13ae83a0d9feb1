"""A cache folder that cannot be used is told once, with the way out, and the server runs without it."""

from pathlib import Path

import pytest

from leftoff.host.build import open_host
from tests.server.fixtures import settings


def warnings_of(folder: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    with open_host(settings(disk=64, cache_dir=str(folder), api_key=("key",))) as host:
        assert host.cache.disk is not None
    return [record.getMessage() for record in caplog.records if record.name.startswith("leftoff")]


def test_a_file_in_its_place_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()
    said = warnings_of(tmp_path / "file" / "cache", caplog)
    assert said == [f"nothing is written to disk: {tmp_path / 'file'} is no folder: give another --cache-dir"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that not even root can write to")
def test_a_folder_that_cannot_be_written_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    (line,) = warnings_of(Path("/proc/self/leftoff"), caplog)
    assert line.startswith("nothing is written to disk: /proc/self/leftoff")
    assert line.endswith("cannot be made: give another --cache-dir")


def test_a_folder_that_can_be_used_is_told_nothing_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_of(tmp_path / "new", caplog) == []


def test_what_is_of_the_folder_is_there_for_a_model_whose_own_part_is_in_use(tmp_path: Path) -> None:
    """The secret names the tenants of all models of a server, and headers are deleted through its first."""
    wanted = settings(disk=64, cache_dir=str(tmp_path), api_key=("key",))
    with open_host(wanted) as first, open_host(wanted) as second:
        assert second.cache.disk is None
        assert second.secret == first.secret
        assert second.headers is not None
