"""`leftoff engine`, from its words to what it prints, on a mirror that has a package with the real library."""

import hashlib
import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from leftoff.cli.main import main
from leftoff.engine.binding.image import this_platform
from leftoff.engine.binding.library import load_library
from leftoff.engine.binding.search import ENVIRONMENT, engines_folder
from leftoff.engine.devices import all_devices
from leftoff.engine.hardware import Gpu
from leftoff.engine.install import packages
from leftoff.engine.install.packages import Archive, Package
from tests.engine.install.mirror import Mirror, serving_mirror
from tests.factory import model_path
from tests.hubs import no_certificates

Capture = pytest.CaptureFixture[str]
FILE = "engine-1.0-py3-none-any.whl"


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.delenv(ENVIRONMENT, raising=False)


@pytest.fixture(scope="module")
def wheel() -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.write(load_library().path, "engine/libllama.so")
    return content.getvalue()


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch, wheel: bytes) -> Iterator[Mirror]:
    archive = Archive("engine", "1.0", FILE, len(wheel), hashlib.sha256(wheel).hexdigest(), "engine/*")
    monkeypatch.setattr(packages, "PACKAGES", (Package("cpu", this_platform(), (archive,), "libllama*"),))
    with serving_mirror() as mirror, no_certificates():
        monkeypatch.setenv("PIP_INDEX_URL", f"{mirror.url}/simple")
        mirror.add_wheel("engine", FILE, wheel)
        yield mirror


def run(capsys: Capture, *words: str) -> str:
    assert main(["engine", *words]) == 0, capsys.readouterr().err
    return capsys.readouterr().out


def test_it_shows_the_library_in_use_its_devices_and_the_machine(capsys: Capture) -> None:
    output = run(capsys)
    library = load_library()
    assert str(library.path) in output
    assert library.build.version in output
    assert all(f"{device}, " in output for device in all_devices(library))
    assert " free of " in output
    assert str(this_platform()) in output
    assert "nothing: leftoff engine install" in output


def test_an_engine_is_installed_shown_chosen_again_and_removed(capsys: Capture, mirror: Mirror) -> None:
    output = run(capsys, "install", "cpu")
    place = engines_folder() / "cpu"
    assert f"installed in {place}: llama.cpp {load_library().build.version}" in output
    assert str(all_devices(load_library())[0]) in output
    assert "cpu (engine 1.0), " in run(capsys)
    asked = len(mirror.requests)
    assert "is installed already, and in use from now on" in run(capsys, "install", "cpu")
    assert len(mirror.requests) == asked
    assert run(capsys, "remove", "cpu") == f"removed cpu from {place}\n"
    assert not engines_folder().exists()


def test_without_a_word_it_installs_what_fits_the_machine(capsys: Capture, mirror: Mirror, wheel: bytes) -> None:
    mirror.add_wheel("engine", FILE, wheel[::-1])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("leftoff.cli.engine.find_gpus", list)
        assert main(["engine", "install"]) == 1
    output = capsys.readouterr()
    assert output.out == f"installing cpu for {this_platform()}: engine 1.0\n"
    assert output.err.startswith(f"leftoff: {FILE} has the SHA-256 ")
    assert output.err.count("\n") == 1


@pytest.mark.usefixtures("mirror")
def test_what_cannot_be_is_refused_in_one_line(capsys: Capture) -> None:
    for words, message in (
        (("install", "rocm"), f"leftoff: there is no prebuilt rocm engine for {this_platform()} (there are: cpu)."),
        (("remove",), "leftoff: no engine is installed\n"),
        (("remove", "cuda12"), "leftoff: cuda12 is not installed\n"),
    ):
        assert main(["engine", *words]) == 1
        output = capsys.readouterr()
        assert output.err.startswith(message)
        assert output.err.count("\n") == 1
    with pytest.raises(SystemExit):
        main(["engine", "install", "quantum"])
    assert "'quantum' is unknown: must be one of cuda" in capsys.readouterr().err


def test_the_library_in_use_is_tried(capsys: Capture) -> None:
    assert "saved and loaded hybrid state exactly" in run(capsys, "check")
    told = json.loads(run(capsys, "check", "--json"))
    assert told["version"] == load_library().build.version
    assert {"name", "description", "is_gpu", "free_bytes", "total_bytes"} == told["devices"][0].keys()


@pytest.mark.skipif(this_platform().system != "Linux", reason="the GPU of a Mac is in use")
@pytest.mark.parametrize("command", ["doctor", "chat", "engine"])
def test_a_gpu_that_is_not_used_is_told_of(capsys: Capture, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    # what finds it, not `find_gpus`: a command that is imported now would keep that for the tests after this one
    monkeypatch.setattr("leftoff.engine.hardware._nvidia", lambda _root: [])
    monkeypatch.setattr("leftoff.engine.hardware._others", lambda _root: [Gpu("Radeon", "cpu")])
    monkeypatch.setattr("sys.stdin", io.StringIO())
    monkeypatch.setenv("LEFTOFF_MODEL", str(model_path("llama")))
    assert main([command]) == 0
    line = "Radeon: this llama.cpp build computes on the CPU. To use the GPU: leftoff engine install"
    assert line in capsys.readouterr().out.splitlines()
