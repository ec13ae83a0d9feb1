"""Backends in files of their own: which are found, what is opened before them, and what is refused."""

import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.linalg import _umath_linalg

from leftoff.engine.binding.backends import _found, _needed, is_on_this_machine, load_backends
from leftoff.engine.binding.library import load_library

NAMES = (
    *("libggml-cpu-armv8.2_1.so", "libggml-cpu-3db4a1e2.so", "libggml-cuda-7c0b4d3a.so", "libggml-vulkan.so"),
    *("libggml-base-18a2acd8.so.0.27.0", "libggml.so.0", "libggml-rpc.so", "libllama.so", "libggml-cpu.txt"),
)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    for name in NAMES:
        (tmp_path / name).write_text("not a library")
    return tmp_path / "libllama.so"


def test_backends_are_known_by_their_names_as_packages_change_them(library: Path) -> None:
    names = {kind: [file.name for file in files] for kind, files in _found(library).items()}
    assert names == {
        "cpu": ["libggml-cpu-3db4a1e2.so", "libggml-cpu-armv8.2_1.so"],
        "cuda": ["libggml-cuda-7c0b4d3a.so"],
        "vulkan": ["libggml-vulkan.so"],
    }


def test_those_of_a_link_are_beside_the_file_it_leads_to(library: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    link = tmp_path / "elsewhere" / "libllama.so"
    link.symlink_to(library)
    assert _found(link) == _found(library)


def test_one_that_cannot_be_loaded_is_named_with_its_reason(library: Path) -> None:
    loaded = load_backends(load_library().dll, library)
    assert loaded.files == []
    refused = [refusal.partition(" cannot be loaded (")[::2] for refusal in loaded.refusals]
    assert {name for name, _ in refused} == {file.name for files in _found(library).values() for file in files}
    assert all(str(library.parent) in reason or "header" in reason for _, reason in refused)


def test_a_library_that_is_no_backend_is_refused(tmp_path: Path) -> None:
    (tmp_path / "libggml-vulkan.so").symlink_to(_umath_linalg.__file__)
    loaded = load_backends(load_library().dll, tmp_path / "libllama.so")
    assert loaded.files == []
    assert loaded.refusals == ["libggml-vulkan.so cannot be loaded (it finds no device here, or is of another build)"]


@pytest.mark.skipif(sys.platform != "linux", reason="the wheels of numpy differ")
def test_what_a_file_depends_on_comes_before_it() -> None:
    folder = Path(np.__file__).parents[1] / "numpy.libs"
    names = [path.name.partition("-")[0] for path in _needed(Path(_umath_linalg.__file__), (folder,))]
    assert names.index("libgfortran") < names.index("libscipy_openblas64_")


def test_a_library_is_looked_for_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_on_this_machine("libof_nobody.so.1")
    assert not is_on_this_machine("")
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{tmp_path}")
    (tmp_path / "libof_nobody.so.1").touch()
    assert is_on_this_machine("libof_nobody.so.1")
