"""Where libraries are looked for, and in which order. The files are empty: nothing is opened here."""

import sys
from pathlib import Path

import pytest

from leftoff.engine.binding.search import ENVIRONMENT, engines_folder, found_libraries

SUFFIX = "dylib" if sys.platform == "darwin" else "so"
PLACES = {
    "llama-cpp-python": f"site/llama_cpp/lib/libllama.{SUFFIX}",
    "cyllama": f"site/cyllama_cuda12.libs/libllama-e4014eb7.{SUFFIX}",
    "inferna": f"site/inferna.libs/libllama-e4014eb7.{SUFFIX}",
    "xllamacpp": "site/xllamacpp/xllamacpp.abi3.so",
    "Homebrew": f"brew/lib/libllama.{SUFFIX}",
}
PACKAGES = ("llama_cpp", "cyllama", "inferna", "xllamacpp")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that has everything; importing one of its packages would end the test."""
    for name in (*PLACES.values(), *(f"site/{package}/__init__.py" for package in PACKAGES)):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("raise SystemExit('imported')")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    for package in PACKAGES:
        monkeypatch.delitem(sys.modules, package, raising=False)
    monkeypatch.setenv("HOMEBREW_PREFIX", str(tmp_path / "brew"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv(ENVIRONMENT, raising=False)
    return tmp_path


def test_packages_come_before_homebrew_and_the_system_and_are_not_imported(root: Path) -> None:
    found = [*found_libraries()]
    assert [(library.source, library.path) for library in found[: len(PLACES)]] == [
        (source, root / place) for source, place in PLACES.items()
    ]
    assert {library.source for library in found[len(PLACES) :]} <= {"Homebrew", "the system"}


def test_an_installed_engine_comes_before_all_of_them_if_its_manifest_can_be_read(root: Path) -> None:
    for name, text in (("cpu", '{"library": "lib.so", "made_from": []}'), ("half", '{"library": '), ("other", "[]")):
        (engines_folder() / name).mkdir(parents=True)
        (engines_folder() / name / "engine.json").write_text(text)
    first, second, *_ = found_libraries()
    assert (first.source, first.path) == ("leftoff engine install cpu", engines_folder() / "cpu" / "lib.so")
    assert second.path == root / PLACES["llama-cpp-python"]


def test_a_library_that_is_named_is_the_only_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT, str(root / "mine.so"))
    assert [library.path for library in found_libraries()] == [root / "mine.so"]


def test_one_file_under_two_names_is_tried_once(root: Path) -> None:
    place = root / PLACES["Homebrew"]
    place.unlink()
    place.symlink_to(root / PLACES["llama-cpp-python"])
    assert place not in [library.path for library in found_libraries()]


def test_a_library_outside_the_folder_of_its_engine_is_not_followed(root: Path) -> None:
    (engines_folder() / "cpu").mkdir(parents=True)
    (engines_folder() / "cpu" / "engine.json").write_text('{"library": "../../../../evil.so", "made_from": []}')
    assert next(found_libraries()).path == root / "data/leftoff/engines/cpu/evil.so"
