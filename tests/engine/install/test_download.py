"""Downloads from a mirror on this machine: whole, broken off, changed on their way, and not there."""

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from leftoff.engine.install.download import expected, fetch, npm_registry, python_index
from leftoff.engine.install.packages import Archive
from leftoff.hub.download import DownloadError, InterruptedDownloadError, check_hash
from tests.engine.install.mirror import Mirror, serving_mirror

CONTENT = os.urandom(1000)
WHEEL = "engine-1.0+local-py3-none-any.whl"
SETTINGS = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "NPM_CONFIG_REGISTRY", "npm_config_registry")


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Mirror]:
    with serving_mirror() as mirror:
        nobody_configured_anything(monkeypatch, tmp_path)
        monkeypatch.setenv("PIP_INDEX_URL", f"{mirror.url}/simple/")
        monkeypatch.setenv("NPM_CONFIG_REGISTRY", mirror.url)
        mirror.add_wheel("engine", WHEEL, CONTENT)
        yield mirror


def nobody_configured_anything(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    for name in (*SETTINGS, "XDG_CONFIG_HOME", "PIP_CONFIG_FILE", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home / "home"))


def archive(content: bytes = CONTENT, project: str = "engine", file: str = WHEEL) -> Archive:
    return Archive(project, "1.0", file, len(content), hashlib.sha256(content).hexdigest(), "*.so")


def test_a_wheel_is_found_in_the_index_that_pip_would_use(mirror: Mirror, tmp_path: Path) -> None:
    seen: list[float] = []
    path = fetch(archive(), tmp_path / "new", seen.append)
    assert path == tmp_path / "new" / WHEEL
    assert path.read_bytes() == CONTENT
    assert seen == sorted(seen)
    assert seen[-1] == 1.0
    assert [*path.parent.iterdir()] == [path]
    assert mirror.requests == [("/simple/engine/", ""), (f"/files/{WHEEL}", "")]


def test_what_is_there_already_is_not_downloaded_again(mirror: Mirror, tmp_path: Path) -> None:
    fetch(archive(), tmp_path, lambda _: None)
    asked = len(mirror.requests)
    fetch(archive(), tmp_path, lambda _: None)
    assert len(mirror.requests) == asked


def test_a_package_of_npm_has_a_fixed_address(mirror: Mirror, tmp_path: Path) -> None:
    mirror.files["/@maker/engine/-/engine-1.0.tgz"] = CONTENT
    assert fetch(archive(project="@maker/engine", file="engine-1.0.tgz"), tmp_path, lambda _: None).exists()


def test_a_download_that_breaks_off_goes_on_by_itself(mirror: Mirror, tmp_path: Path) -> None:
    mirror.break_after = 300
    assert fetch(archive(), tmp_path, lambda _: None).read_bytes() == CONTENT
    assert mirror.ranges() == ["", "bytes=300-", "bytes=600-", "bytes=900-"]


def test_one_that_breaks_off_too_often_goes_on_next_time(mirror: Mirror, tmp_path: Path) -> None:
    mirror.break_after = 10
    with pytest.raises(InterruptedDownloadError, match=r"broke off after 40 of 1,000 bytes .* Run the command again"):
        fetch(archive(), tmp_path, lambda _: None)
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == [f"{WHEEL}.part"]
    mirror.break_after = None
    assert fetch(archive(), tmp_path, lambda _: None).read_bytes() == CONTENT
    assert mirror.ranges()[-1] == "bytes=40-"


def test_a_server_without_ranges_sends_everything_again(mirror: Mirror, tmp_path: Path) -> None:
    (tmp_path / f"{WHEEL}.part").write_bytes(CONTENT[:100])
    mirror.knows_ranges = False
    assert fetch(archive(), tmp_path, lambda _: None).read_bytes() == CONTENT


@pytest.mark.parametrize("sent", [CONTENT[::-1], CONTENT + bytes(9 << 20)], ids=["changed", "longer"])
def test_another_file_than_the_pinned_one_is_not_kept(mirror: Mirror, tmp_path: Path, sent: bytes) -> None:
    mirror.add_wheel("engine", WHEEL, sent)
    with pytest.raises(DownloadError) as raised:
        fetch(archive(), tmp_path / "new", lambda _: None)
    assert archive().sha256 in str(raised.value)
    assert not any((tmp_path / "new").iterdir())


def test_the_hash_of_a_given_file_is_checked_and_the_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / WHEEL
    path.write_bytes(CONTENT)
    check_hash(path, expected(archive()))
    with pytest.raises(DownloadError, match="is expected"):
        check_hash(path, expected(archive(b"other")))
    assert path.exists()


@pytest.mark.usefixtures("mirror")
def test_a_missing_file_and_a_missing_project_are_told(tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match=r"/simple/engine/ has no other.whl: set PIP_INDEX_URL"):
        fetch(archive(file="other.whl"), tmp_path, lambda _: None)
    with pytest.raises(DownloadError, match=r"/simple/nothing/ answered 404 Not Found.*--from"):
        fetch(archive(project="nothing"), tmp_path, lambda _: None)
    with pytest.raises(DownloadError, match="answered 404"):
        fetch(archive(project="@maker/nothing"), tmp_path, lambda _: None)
    assert not [path for path in tmp_path.iterdir() if path.is_file()]


@pytest.mark.parametrize("project", ["engine", "@maker/engine"])
def test_without_a_network_the_ways_out_are_told_but_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: str
) -> None:
    nobody_configured_anything(monkeypatch, tmp_path)
    with serving_mirror() as gone:
        address = gone.url.replace("//", "//me:secret@")
    monkeypatch.setenv("PIP_INDEX_URL", address)
    monkeypatch.setenv("NPM_CONFIG_REGISTRY", address)
    with pytest.raises(DownloadError, match=r"cannot be reached .*PIP_INDEX_URL.*--from") as raised:
        fetch(archive(project=project), tmp_path, lambda _: None)
    assert "secret" not in str(raised.value)


def test_the_password_of_the_index_is_given_for_its_files_too(mirror: Mirror, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_INDEX_URL", mirror.url.replace("//", "//me:secret@") + "/simple")
        assert fetch(archive(), tmp_path, lambda _: None).exists()
    assert mirror.logins == ["Basic bWU6c2VjcmV0"] * 2


def test_mirrors_are_those_of_pip_and_npm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nobody_configured_anything(monkeypatch, tmp_path)
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    (tmp_path / "home" / ".config" / "pip").mkdir(parents=True)
    (tmp_path / "home" / ".config" / "pip" / "pip.conf").write_text(
        "[global]\nindex-url = https://pip.example/simple/\n"
    )
    (tmp_path / "home" / ".npmrc").write_text("fund=false\nregistry = https://npm.example/\n")
    assert (python_index(), npm_registry()) == ("https://pip.example/simple", "https://npm.example")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert python_index() == "https://pypi.org/simple"
    monkeypatch.setenv("UV_INDEX_URL", "https://uv.example/simple")
    assert python_index() == "https://uv.example/simple"
