"""Where llama.cpp libraries are looked for on this machine, in the order in which they are tried.

1. the file that the environment names, and then no other
2. engines that `leftoff engine install` put into the user's data folder, the chosen one first
3. Python packages: llama-cpp-python, which people compile for their machine, cyllama and alike, xllamacpp
4. Homebrew and the system

No package is imported to find its library.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ENVIRONMENT = "LEFTOFF_LIBLLAMA"
MANIFEST = "engine.json"
CHOSEN = "chosen"

_ANY_SUFFIX = "dylib" if sys.platform == "darwin" else "so*"
_SUFFIX = _ANY_SUFFIX.rstrip("*")
# Package, how it is called where packages are installed, and its libraries as seen from the folder of the package.
_PACKAGES = (
    ("llama_cpp", "llama-cpp-python", f"lib/libllama.{_SUFFIX}"),
    ("cyllama", "cyllama", f"../cyllama*.libs/libllama-*.{_ANY_SUFFIX}"),
    ("inferna", "inferna", f"../inferna*.libs/libllama-*.{_ANY_SUFFIX}"),
    ("xllamacpp", "xllamacpp", "xllamacpp*.so"),
)
_HOMEBREW = ("/opt/homebrew", "/home/linuxbrew/.linuxbrew")
_SYSTEM = ("/usr/local/lib", "/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu")


@dataclass(frozen=True)
class Candidate:
    """A library file that may be usable, and where it comes from, for people."""

    path: Path
    source: str


@dataclass(frozen=True)
class InstalledEngine:
    """An engine in the user's data folder: its library, and what it was made from, such as `cyllama-cuda12 0.7.0`."""

    name: str
    folder: Path
    library: Path
    made_from: tuple[str, ...]

    @property
    def nbytes(self) -> int:
        return sum(file.stat().st_size for file in self.folder.iterdir())


def found_libraries() -> Iterator[Candidate]:
    """Libraries in the order in which they are tried, each once."""
    chosen = os.environ.get(ENVIRONMENT)
    if chosen:
        yield Candidate(Path(chosen), ENVIRONMENT)
        return
    seen = set()
    for candidate in (*_installed(), *found_packages(), *_of_the_system()):
        real = candidate.path.resolve()
        if real not in seen:
            seen.add(real)
            yield candidate


def engines_folder() -> Path:
    """The folder of installed engines, in the user's data folder."""
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share")
    return data / "leftoff" / "engines"


def installed_engines() -> list[InstalledEngine]:
    """Installed engines, the chosen one first."""
    folder = engines_folder()
    engines = [engine for path in sorted(folder.glob(f"*/{MANIFEST}")) if (engine := _read_manifest(path))]
    chosen = ""
    with suppress(OSError):
        chosen = (folder / CHOSEN).read_text().strip()
    return sorted(engines, key=lambda engine: engine.name != chosen)


def _read_manifest(path: Path) -> InstalledEngine | None:
    try:
        content = json.loads(path.read_text())
        library = path.parent / Path(content["library"]).name
        return InstalledEngine(path.parent.name, path.parent, library, tuple(map(str, content["made_from"])))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _installed() -> Iterator[Candidate]:
    for engine in installed_engines():
        yield Candidate(engine.library, f"leftoff engine install {engine.name}")


def found_packages() -> Iterator[Candidate]:
    """The libraries in Python packages."""
    for package, source, pattern in _PACKAGES:
        with suppress(ImportError, ValueError):  # a package that is broken, or hidden
            spec = importlib.util.find_spec(package)
            if spec and spec.origin:
                for path in sorted(Path(spec.origin).parent.glob(pattern)):
                    yield Candidate(Path(os.path.normpath(path)), source)


def _of_the_system() -> Iterator[Candidate]:
    homebrew = [os.environ.get("HOMEBREW_PREFIX", ""), *_HOMEBREW]
    places = [(Path(prefix) / "lib", "Homebrew") for prefix in homebrew if prefix]
    for folder, source in [*places, *((Path(place), "the system") for place in _SYSTEM)]:
        yield from (Candidate(path, source) for path in sorted(folder.glob(f"libllama.{_ANY_SUFFIX}")))
