"""Engines installed from archives made here: of the real library, of another platform's, of names that lead outside."""

import hashlib
import io
import json
import os
import struct
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leftoff.engine.binding.image import this_platform
from leftoff.engine.binding.library import load_library
from leftoff.engine.binding.search import engines_folder, found_libraries, installed_engines
from leftoff.engine.devices import all_devices
from leftoff.engine.install.install import InstallError, choose, install, remove, try_library
from leftoff.engine.install.packages import Archive, Package
from leftoff.hub.download import DownloadError, Expected, InterruptedDownloadError, check_hash
from tests.engine.install.mirror import Mirror, serving_mirror

PROJECT, FILE = "engine", "engine-1.0-py3-none-any.whl"
FOREIGN = struct.pack("<II", 0xFEEDFACF, 0x0100000C if sys.platform == "linux" else 0x01000012)  # a library of macOS


@pytest.fixture(autouse=True)
def _folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    with serving_mirror() as mirror:
        monkeypatch.setenv("PIP_INDEX_URL", f"{mirror.url}/simple")
        monkeypatch.setenv("NPM_CONFIG_REGISTRY", mirror.url)
        yield mirror


def wheel(members: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return content.getvalue()


def package(content: bytes, *, file: str = FILE, project: str = PROJECT, take: str = "engine/*") -> Package:
    archive = Archive(project, "1.0", file, len(content), hashlib.sha256(content).hexdigest(), take)
    return Package("cpu", this_platform(), (archive,), library="libllama*")


def quietly(_title: str) -> Callable[[float], None]:
    return lambda _fraction: None


def left_over(tmp_path: Path) -> list[str]:
    """Every file below the two folders, but for the memory of hashes, which any load writes."""
    files = [path for top in ("data", "cache") for path in (tmp_path / top).rglob("*") if path.is_file()]
    return [path.name for path in files if path.name != "fingerprints.json"]


def test_an_engine_is_downloaded_unpacked_tried_and_used(mirror: Mirror, tmp_path: Path) -> None:
    library = load_library().path.read_bytes()
    content = wheel({"engine/libllama.so": library, "engine/__init__.py": b"raise SystemExit", "other/lib.so": b"?"})
    mirror.add_wheel(PROJECT, FILE, content)
    titles: list[str] = []

    def begin(title: str) -> Callable[[float], None]:
        titles.append(title)
        return lambda _fraction: None

    trial = install(package(content), begin)
    assert titles == ["downloading engine 1.0", "unpacking engine 1.0", "trying it"]
    assert trial.version == load_library().build.version
    assert [device.name for device in trial.devices] == [device.name for device in all_devices(load_library())]
    folder = engines_folder() / "cpu"
    assert sorted(path.name for path in folder.iterdir()) == ["engine.json", "libllama.so"]
    assert sorted(left_over(tmp_path)) == ["chosen", "engine.json", "libllama.so"]
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("LEFTOFF_LIBLLAMA", raising=False)
        assert next(found_libraries()).path == folder / "libllama.so"
    (engine,) = installed_engines()
    assert (engine.name, engine.made_from) == ("cpu", ("engine 1.0",))
    assert engine.nbytes > len(library)
    remove(engine)
    assert installed_engines() == []
    assert left_over(tmp_path) == []


def test_a_changed_archive_leaves_nothing_behind_and_the_old_engine_in_place(mirror: Mirror, tmp_path: Path) -> None:
    old = engines_folder() / "cpu"
    old.mkdir(parents=True)
    (old / "engine.json").write_text(json.dumps({"library": "libllama.so", "made_from": []}))
    content = wheel({"engine/libllama.so": b"x"})
    mirror.add_wheel(PROJECT, FILE, content[::-1])
    with pytest.raises(DownloadError, match="is expected"):
        install(package(content), quietly)
    assert left_over(tmp_path) == ["engine.json"]


def test_a_download_that_breaks_off_leaves_only_what_it_needs_to_go_on(mirror: Mirror, tmp_path: Path) -> None:
    content = wheel({"engine/libllama.so": os.urandom(5000)})
    mirror.add_wheel(PROJECT, FILE, content)
    mirror.break_after = 100
    with pytest.raises(InterruptedDownloadError):
        install(package(content), quietly)
    assert left_over(tmp_path) == [f"{FILE}.part"]
    assert not engines_folder().exists()


def test_a_library_of_another_platform_is_refused_before_it_is_opened(mirror: Mirror, tmp_path: Path) -> None:
    content = wheel({"engine/libllama.so": FOREIGN + bytes(100)})
    mirror.add_wheel(PROJECT, FILE, content)
    with pytest.raises(
        InstallError, match=rf"libllama.so is a library for macOS .*, and this machine is {this_platform()}"
    ):
        install(package(content), quietly)
    assert left_over(tmp_path) == []


def test_what_is_no_library_is_refused(mirror: Mirror, tmp_path: Path) -> None:
    content = wheel({"engine/libllama.so": b"text"})
    mirror.add_wheel(PROJECT, FILE, content)
    with pytest.raises(InstallError, match=r"libllama.so is a library for no known platform"):
        install(package(content), quietly)
    assert left_over(tmp_path) == []


def test_names_that_lead_outside_and_links_are_not_followed(mirror: Mirror, tmp_path: Path) -> None:
    """Only the last part of a name counts, and only for regular files."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as tarball:
        for name in ("package/../../../libescape.so", "package/libplain.so", "package/run.sh", "package/.so"):
            member = tarfile.TarInfo(name)
            member.size = 4
            tarball.addfile(member, io.BytesIO(b"data"))
        link = tarfile.TarInfo("package/liblink.so")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tarball.addfile(link)
    mirror.files["/@maker/engine/-/engine.tgz"] = content.getvalue()
    with pytest.raises(InstallError, match=r"libescape.so is a library for no known platform"):
        install(package(content.getvalue(), file="engine.tgz", project="@maker/engine", take="package/*"), quietly)
    assert not [*tmp_path.rglob("libescape.so")]
    assert left_over(tmp_path) == []


def test_an_archive_without_libraries_or_damaged_inside_is_refused(mirror: Mirror, tmp_path: Path) -> None:
    for content, message in ((wheel({"engine/readme": b"x"}), "has no library like"), (b"text", "cannot be unpacked")):
        mirror.add_wheel(PROJECT, FILE, content)
        with pytest.raises(InstallError, match=message):
            install(package(content), quietly)
        assert left_over(tmp_path) == []


def test_archives_of_a_given_folder_need_no_network(tmp_path: Path) -> None:
    content = wheel({"engine/libllama.so": FOREIGN + bytes(100)})
    given = tmp_path / "given"
    given.mkdir()
    with pytest.raises(InstallError, match=rf"{given} has no {FILE}: download it from engine 1.0 first"):
        install(package(content), quietly, given)
    (given / FILE).write_bytes(content)
    with pytest.raises(InstallError, match="is a library for macOS"):
        install(package(content), quietly, given)
    assert (given / FILE).exists()
    assert left_over(tmp_path) == []


def test_a_given_archive_that_is_changed_after_it_was_checked_is_not_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content, hostile = (wheel({"engine/libllama.so": start + bytes(100)}) for start in (FOREIGN, b"hostile"))
    given = tmp_path / "given"
    given.mkdir()
    (given / FILE).write_bytes(content)

    def check_and_change(path: Path, expected: Expected) -> None:
        check_hash(path, expected)
        (given / FILE).write_bytes(hostile)

    monkeypatch.setattr("leftoff.engine.install.install.check_hash", check_and_change)
    with pytest.raises(InstallError, match="is a library for macOS"):  # as that of the first archive is
        install(package(content), quietly, given)
    assert left_over(tmp_path) == []


def test_two_installs_do_not_get_into_each_others_way(mirror: Mirror, tmp_path: Path) -> None:
    """What a killed one has left is removed by the next."""
    content = wheel({"engine/libllama.so": b"text"})
    mirror.add_wheel(PROJECT, FILE, content)
    (engines_folder() / ".new-killed").mkdir(parents=True)
    (engines_folder() / ".new-killed" / "libllama.so").touch()
    with pytest.raises(InstallError, match="no known platform"):
        install(package(content), quietly)
    assert left_over(tmp_path) == []

    def again(_title: str) -> Callable[[float], None]:
        install(package(content), quietly)
        return lambda _fraction: None

    with pytest.raises(InstallError, match=f"another leftoff engine install is at work in {engines_folder()}"):
        install(package(content), again)
    assert left_over(tmp_path) == []


def test_a_library_that_is_too_old_is_refused_by_the_process_that_tries_it(tmp_path: Path) -> None:
    path = tmp_path / "libllama.so"
    path.write_bytes(b"text")
    with pytest.raises(InstallError, match=f"{path} cannot be loaded"):
        try_library(path)


def test_a_library_that_crashes_ends_only_the_process_that_tries_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crashing = tmp_path / "python"
    crashing.write_text(
        "#!/bin/sh\necho some reason >&2\necho 'libllama.so(main+0x8b)[0x7fc6d722a28b]' >&2\nkill -SEGV $$\n"
    )
    crashing.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(crashing))
    with pytest.raises(InstallError, match=r"libllama.so crashes on this machine \(SIGSEGV; it said: some reason\)"):
        try_library(tmp_path / "libllama.so")


def test_an_engine_is_chosen_among_several() -> None:
    for name in ("cpu", "vulkan"):
        (engines_folder() / name).mkdir(parents=True)
        (engines_folder() / name / "engine.json").write_text(json.dumps({"library": "lib.so", "made_from": []}))
    (engines_folder() / "broken").mkdir()
    (engines_folder() / "broken" / "engine.json").write_text("{")
    assert [engine.name for engine in installed_engines()] == ["cpu", "vulkan"]
    choose("vulkan")
    assert [engine.name for engine in installed_engines()] == ["vulkan", "cpu"]
