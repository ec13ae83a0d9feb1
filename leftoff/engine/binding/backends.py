"""Loads the backends of a llama.cpp build that has each of them, CPU, CUDA, Vulkan and so on, in a file of its own.

Such a library computes on nothing until its backends are loaded. They are the files `libggml-<kind>…` beside it. Of a
kind with several files, for processors of several generations, the one that scores best on this machine is loaded.
llama.cpp's own search expects names that wheels do not keep, and looks into the current folder too: it is not used.
"""

import ctypes as C
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from leftoff.engine.binding.image import read_image

_FILE = re.compile(r"libggml-([a-z]+)(?:[-.][\w.+-]*)?\.(?:so|dylib)(?:\.[\d.]+)?")
_NO_BACKENDS = ("base", "rpc")  # the part that all share; computing on other machines
_CPU = "cpu"
# Where packages of systems put backends, seen from the library.
_FOLDERS = ("", "ggml/backends*/", "../libexec/")
# Toolkits that not every machine tells its dynamic linker of.
_TOOLKITS = ("/usr/local/cuda/lib64", "/opt/rocm/lib")
_SYSTEM = ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib")


@dataclass
class Backends:
    """The files that were loaded, and for each that could not be, the reason."""

    files: list[Path] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)


def load_backends(dll: C.CDLL, library: Path) -> Backends:
    """Loads the best backend of each kind found beside the library. The CPU comes last, as in llama.cpp."""
    loaded = Backends()
    for kind, files in sorted(_found(library).items(), key=lambda item: (item[0] == _CPU, item[0])):
        path = _best(files, loaded) if kind == _CPU else files[0]
        if path is None:
            continue
        problem = _load(dll, path)
        if problem:
            loaded.refusals.append(f"{path.name} cannot be loaded ({problem})")
        else:
            loaded.files.append(path)
    return loaded


def is_on_this_machine(name: str) -> bool:
    """Whether a library of this file name is where a backend that needs it would find it."""
    search_path = filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))
    return bool(name) and any(Path(folder, name).is_file() for folder in (*search_path, *_TOOLKITS, *_SYSTEM))


def _found(library: Path) -> dict[str, list[Path]]:
    kinds: dict[str, list[Path]] = defaultdict(list)
    folder = library.resolve().parent
    for path in (path for pattern in _FOLDERS for path in sorted(folder.glob(f"{pattern}libggml-*"))):
        match = _FILE.fullmatch(path.name)
        if match and match[1] not in _NO_BACKENDS:
            kinds[match[1]].append(path)
    return kinds


def _best(files: Iterable[Path], loaded: Backends) -> Path | None:
    """The file with the highest score; a score of 0 means that this processor lacks an instruction it uses."""
    scores = {}
    for path in files:
        try:
            scores[path] = _score(path)
        except OSError as error:
            loaded.refusals.append(f"{path.name} cannot be loaded ({error})")
    best = max(scores, key=scores.__getitem__, default=None)
    if best is not None and scores[best] == 0:
        loaded.refusals.append(f"{best.name} needs instructions that this processor lacks")
        return None
    return best


def _score(path: Path) -> int:
    backend = C.CDLL(str(path))
    try:
        return int(backend["ggml_backend_score"]())
    except AttributeError:  # a build for one kind of processor
        return 1


def _load(dll: C.CDLL, path: Path) -> str:
    """Loads one backend, after the libraries it needs; returns the problem, empty if there was none."""
    try:
        packages = sorted(path.parent.parent.glob("nvidia/*/lib"))  # as pip installs NVIDIA's
        for needed in _needed(path, (path.parent, *packages, *map(Path, _TOOLKITS))):
            C.CDLL(str(needed))
        C.CDLL(str(path))  # ggml_backend_load does not say why it fails
    except OSError as error:
        return str(error)
    return "" if dll.ggml_backend_load(os.fsencode(path)) else "it finds no device here, or is of another build"


def _needed(path: Path, folders: tuple[Path, ...]) -> Iterator[Path]:
    """The libraries in these folders on which a file depends, each after those that it depends on itself.

    Once they are open, the dynamic linker takes them for what the file needs, wherever it would have searched.
    """
    image = read_image(path)
    for name in image.needed if image else ():
        found = next((folder / name for folder in folders if (folder / name).is_file()), None)
        if found:
            yield from _needed(found, folders)
            yield found
