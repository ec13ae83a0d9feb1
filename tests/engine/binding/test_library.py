"""Which library is taken, and what is said of one that cannot be. Each case runs in a process of its own: it lives."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from numpy.linalg import _umath_linalg

import leftoff
from leftoff.engine.binding import abi
from leftoff.engine.binding.image import this_platform
from leftoff.engine.binding.library import FIX, _missing_library, load_library
from leftoff.engine.binding.search import ENVIRONMENT
from leftoff.engine.devices import all_devices

REFUSED = 3
OTHER_LAYOUT = next(b.version for b in abi.BUILDS if b.context_params != load_library().build.context_params)
PROGRAM = """
import logging, sys
from leftoff.engine.binding import abi
from leftoff.engine.binding.image import this_platform
from leftoff.engine.errors import LibraryError
logging.basicConfig(stream=sys.stdout, format="%(levelname)s %(message)s")
for word in sys.argv[1:]:
    name, is_default, value = word.partition("=")
    if is_default:
        abi.CONTEXT_DEFAULTS[name] = int(value)
    else:
        sys.modules[name] = None  # as if this package were not installed
from leftoff.engine.binding.library import load_library
try:
    print("opened", load_library().path)
except LibraryError as error:
    print(error)
    sys.exit(3)
"""


def load_in_a_process(
    library: str | Path | None = None, *, folder: Path | None = None, words: tuple[str, ...] = ()
) -> tuple[int, str]:
    """Exit code and output of a process that loads the library; `folder` comes first on its path and is its own.

    A word names a package that it does not find, or has the value of a default that it expects.
    """
    environment = {name: value for name, value in os.environ.items() if name != ENVIRONMENT}
    environment["XDG_DATA_HOME"] = str((folder or Path(__file__).parent) / "data")
    if library is not None:
        environment[ENVIRONMENT] = str(library)
    paths = [*([str(folder)] if folder else []), str(Path(leftoff.__file__).parents[1])]
    environment["PYTHONPATH"] = os.pathsep.join(paths)
    command = [sys.executable, "-W", "error", "-c", PROGRAM, *words]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.returncode, done.stdout


def installed_package(folder: Path) -> Path:
    """Where a library would lie if llama-cpp-python were installed in `folder`."""
    place = folder / "llama_cpp" / "lib" / f"libllama.{'dylib' if sys.platform == 'darwin' else 'so'}"
    place.parent.mkdir(parents=True)
    (folder / "llama_cpp" / "__init__.py").touch()
    return place


@pytest.fixture
def relabelled(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """The real library, but for the version that it tells."""
    if sys.platform == "darwin":
        pytest.skip("macOS ends a process that loads a library which was changed after it was signed")
    library = load_library()
    told, content = library.build.version.encode() + b"\0", library.path.read_bytes()
    assert content.count(b"\0" + told) == 1
    path = tmp_path / "relabelled.so"
    path.write_bytes(content.replace(b"\0" + told, b"\0" + str(request.param).encode() + b"\0"))
    yield path
    path.unlink()  # a hundred megabytes


def test_an_installed_library_is_found_without_being_named() -> None:
    assert load_in_a_process(words=("llama_cpp",)) == (0, f"opened {wheel()}\n")


def test_the_library_named_by_the_environment_comes_first(tmp_path: Path) -> None:
    named = tmp_path / "named.so"
    named.symlink_to(wheel())
    installed_package(tmp_path).symlink_to(wheel())
    assert load_in_a_process(named, folder=tmp_path) == (0, f"opened {named}\n")


def test_a_bare_file_name_means_a_file_in_the_current_folder(tmp_path: Path) -> None:
    (tmp_path / "named.so").symlink_to(wheel())
    assert load_in_a_process("named.so", folder=tmp_path) == (0, "opened named.so\n")


def test_an_own_build_comes_before_the_prebuilt_one(tmp_path: Path) -> None:
    own = installed_package(tmp_path)
    own.symlink_to(wheel())
    assert load_in_a_process(folder=tmp_path) == (0, f"opened {own}\n")


def test_an_unusable_installed_library_is_passed_over_with_a_warning(tmp_path: Path) -> None:
    own = installed_package(tmp_path)
    own.write_text("not a library")
    code, output = load_in_a_process(folder=tmp_path)
    assert (code, output.splitlines()[-1]) == (0, f"opened {wheel()}")
    assert output.startswith(f"WARNING {own} cannot be loaded")


def test_without_any_library_the_command_that_installs_one_is_told() -> None:
    code, output = load_in_a_process(words=("llama_cpp", "xllamacpp"))
    assert code == REFUSED
    assert "no usable llama.cpp library: none is installed" in output
    assert FIX in output


def test_a_named_library_that_is_not_there_is_not_replaced_by_another(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.so", tmp_path):
        code, output = load_in_a_process(path)
        assert code == REFUSED
        assert f"there is no llama.cpp library at {path}" in output
        assert ENVIRONMENT in output
        assert FIX in output


@pytest.mark.parametrize("content", [b"", b"not a library", b"\x7fELF and no more"])
def test_a_file_that_is_no_library_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "text.so"
    path.write_bytes(content)
    code, output = load_in_a_process(path)
    assert code == REFUSED
    assert f"{path} cannot be loaded" in output
    assert FIX in output


@pytest.mark.skipif(sys.platform != "linux", reason="of how Linux names libraries")
def test_a_missing_library_of_the_system_is_named(tmp_path: Path) -> None:
    content, path = load_library().path.read_bytes(), tmp_path / "llama.so"
    assert content.count(b"\0libgomp.so.1\0") == 1
    path.write_bytes(content.replace(b"\0libgomp.so.1\0", b"\0libgomq.so.1\0"))
    code, output = load_in_a_process(path)
    path.unlink()  # a hundred megabytes
    assert code == REFUSED
    assert "libgomq.so.1 is missing on this machine: install the package that has it" in output
    assert FIX not in output
    told = "libgomp.so.1: cannot open shared object file: No such file or directory"
    assert _missing_library(told).endswith("apt-get install libgomp1, dnf install libgomp or apk add libgomp")
    assert _missing_library("/lib/x.so: file too short") == ""


def test_a_library_of_something_else_is_refused() -> None:
    other = _umath_linalg.__file__
    code, output = load_in_a_process(other)
    needed = len(abi.FUNCTIONS) + len(abi.CONTEXT_FUNCTIONS)
    assert code == REFUSED
    assert f"{other} lacks {needed} of the {needed} functions" in output
    assert "llama_version" in output
    assert all(build.version in output for build in abi.BUILDS)
    assert FIX in output


@pytest.mark.parametrize("relabelled", ["9.9.9-dev", OTHER_LAYOUT], indirect=True)
def test_a_version_that_was_not_tried_is_used_with_a_notice_if_its_structs_are_known(relabelled: Path) -> None:
    """So is one that tells a version whose structs lie differently: where its defaults stand decides."""
    code, output = load_in_a_process(relabelled)
    notice, opened = output.splitlines()
    assert (code, opened) == (0, f"opened {relabelled}")
    assert notice.startswith(f"WARNING {relabelled} is llama.cpp ")
    assert "its structs are those of " in notice


def test_a_build_whose_structs_lie_differently_is_refused() -> None:
    code, output = load_in_a_process(wheel(), words=("n_ubatch=513",))
    assert code == REFUSED
    assert f"{wheel()} is llama.cpp {load_library().build.version}, whose structs are laid out in a way" in output
    assert "(n_ubatch is 512, not 513)" in output
    assert all(build.version in output for build in abi.BUILDS)
    assert FIX in output


@pytest.mark.skipif(sys.platform != "linux", reason="patches an ELF file")
def test_a_library_for_another_machine_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "other.so"
    content = bytearray(Path(_umath_linalg.__file__).read_bytes())
    content[18:20] = (0xF3).to_bytes(2, "little")
    path.write_bytes(content)
    code, output = load_in_a_process(path)
    assert code == REFUSED
    assert f"{path} is a library for Linux riscv64, and this machine is {this_platform()}" in output
    assert FIX in output


def test_an_installed_engine_comes_before_packages_and_the_chosen_one_first(tmp_path: Path) -> None:
    installed_package(tmp_path).symlink_to(wheel())
    engines = tmp_path / "data" / "leftoff" / "engines"
    for name in ("cpu", "vulkan"):
        (engines / name).mkdir(parents=True)
        (engines / name / "lib.so").symlink_to(wheel())
        (engines / name / "engine.json").write_text(json.dumps({"library": "lib.so", "made_from": ["a wheel"]}))
    assert load_in_a_process(folder=tmp_path) == (0, f"opened {engines / 'cpu' / 'lib.so'}\n")
    (engines / "chosen").write_text("vulkan")
    assert load_in_a_process(folder=tmp_path) == (0, f"opened {engines / 'vulkan' / 'lib.so'}\n")


def test_a_loaded_library_tells_what_it_computes_on() -> None:
    library = load_library()
    assert any("CPU" in str(device) for device in all_devices(library))
    assert "CPU" in library.system_info
    assert len(library.fingerprint) == 64


@pytest.mark.parametrize(
    ("chosen", "spins"),
    [
        ({}, "10000" if os.uname().machine in ("aarch64", "arm64") else "300000"),
        ({"GOMP_SPINCOUNT": "77"}, "77"),
        ({"OMP_WAIT_POLICY": "PASSIVE"}, "0"),
    ],
)
def test_threads_spin_as_long_as_is_best_for_the_machine_unless_the_user_says_otherwise(
    chosen: dict[str, str], spins: str
) -> None:
    usual = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    environment = usual | chosen | {"OMP_DISPLAY_ENV": "verbose"}
    load = "from leftoff.engine.binding.library import load_library; load_library()"
    command = f"{load}; import os; print(os.environ.get('GOMP_SPINCOUNT'))"
    told = subprocess.run([sys.executable, "-c", command], env=environment, capture_output=True, text=True, check=True)
    if "GOMP_SPINCOUNT" not in told.stderr:
        pytest.skip("the library's threads are not those of libgomp")
    assert f"GOMP_SPINCOUNT = '{spins}'" in told.stderr
    assert told.stdout == f"{chosen.get('GOMP_SPINCOUNT')}\n", "a child process inherits what the user chose, no more"


def wheel() -> Path:
    return load_library().path
