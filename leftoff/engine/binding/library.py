"""Finds a shared library that exports the llama.h C API, and proves that it is one we can call.

Nothing here knows models or contexts. A library that is missing, too old or unknown gets an error that says what
was found, what is needed and the command that fixes it; it never crashes the process.
"""

import ctypes as C
import functools
import importlib.util
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from leftoff.engine.binding import abi
from leftoff.engine.binding.log import LogCapture
from leftoff.engine.errors import LibraryError
from leftoff.engine.fingerprint import file_fingerprint

logger = logging.getLogger(__name__)

ENVIRONMENT = "LEFTOFF_LIBLLAMA"
FIX = "pip install --force-reinstall xllamacpp==2026.10.11549"

# Large enough for any of the structs that llama.cpp returns by value, so that an unknown one cannot overrun it.
_PROBE_BYTES = 512


class _Probe(C.Structure):
    _fields_ = (("raw", C.c_uint8 * _PROBE_BYTES),)


@dataclass(frozen=True)
class Library:
    """A library that was checked and initialised. `dll` has every function of `abi.FUNCTIONS`, typed.

    `brief` calls them without letting other Python threads run meanwhile: for what takes less time than to ask for the
    interpreter again.
    """

    dll: C.CDLL
    brief: C.PyDLL
    path: Path
    build: abi.Build
    log: LogCapture = field(repr=False)

    @functools.cached_property
    def fingerprint(self) -> str:
        """Names the exact build: state saved by one is not loaded by another."""
        return file_fingerprint(self.path)

    def has(self, function: str) -> bool:
        """Of those in `abi.OPTIONAL`."""
        return hasattr(self.dll, function)

    @property
    def system_info(self) -> str:
        info: bytes = self.dll.llama_print_system_info()
        return info.decode().strip(" |")

    @property
    def devices(self) -> tuple[str, ...]:
        """What the library can compute on."""
        dll = self.dll
        found = (dll.ggml_backend_dev_get(i) for i in range(dll.ggml_backend_dev_count()))
        names = ((dll.ggml_backend_dev_name(d), dll.ggml_backend_dev_description(d)) for d in found)
        return tuple(f"{name.decode()} ({text.decode()})" for name, text in names)


@functools.cache
def load_library() -> Library:
    """The first usable library: the environment's, an installed llama-cpp-python's, the prebuilt wheel's."""
    chosen = os.environ.get(ENVIRONMENT)
    if chosen:
        return open_library(Path(chosen))
    refusals = []
    for path in _installed():
        try:
            return open_library(path)
        except LibraryError as error:
            logger.warning("%s", error)
            refusals.append(str(error))
    tried = "\n".join(refusals) or "neither llama-cpp-python nor xllamacpp is installed"
    raise LibraryError(f"no usable llama.cpp library: {tried}\nfix it with: {FIX}")


def open_library(path: Path) -> Library:
    """Checks one library file, step by step, before anything in it runs in earnest."""
    if not path.is_file():
        raise LibraryError(f"there is no llama.cpp library at {path}: set {ENVIRONMENT} to a file, or run: {FIX}")
    try:
        name = str(path.absolute())  # a bare one would be searched for elsewhere
        dll, brief = C.CDLL(name), C.PyDLL(name)
    except OSError as error:
        raise LibraryError(f"{path} cannot be loaded ({error}): rebuild it for this machine, or run: {FIX}") from error
    _check_names(dll, path)
    _bind(dll)
    _bind(brief)
    build = _identify(dll, path)
    _check_layouts(dll, build, path)
    log = LogCapture()
    log.attach(dll)
    dll.llama_backend_init()
    return Library(dll, brief, path, build, log)


def _installed() -> Iterator[Path]:
    suffix = {"darwin": "dylib", "win32": "dll"}.get(sys.platform, "so")
    for package, pattern in (("llama_cpp", f"lib/*llama.{suffix}"), ("xllamacpp", "xllamacpp*.so")):
        spec = importlib.util.find_spec(package)
        if spec and spec.origin:
            yield from sorted(Path(spec.origin).parent.glob(pattern))


def _check_names(dll: C.CDLL, path: Path) -> None:
    needed = [*abi.FUNCTIONS, "llama_context_default_params", "llama_init_from_model"]
    missing = [name for name in needed if not hasattr(dll, name)]
    if missing:
        raise LibraryError(
            f"{path} lacks {len(missing)} of the {len(needed)} functions leftoff calls (first: {missing[0]}): "
            f"it is too old or not llama.cpp. Known builds: {_known()}. Fix it with: {FIX}"
        )


def _bind(dll: C.CDLL) -> None:
    for name, (result, arguments) in (abi.FUNCTIONS | abi.OPTIONAL).items():
        if hasattr(dll, name):
            function = getattr(dll, name)
            function.restype, function.argtypes = result, arguments


def _identify(dll: C.CDLL, path: Path) -> abi.Build:
    version = dll.llama_version().decode()
    for build in abi.BUILDS:
        if build.version == version:
            return build
    raise LibraryError(f"{path} is llama.cpp {version}, which leftoff does not know. Known: {_known()}. Run: {FIX}")


def _check_layouts(dll: C.CDLL, build: abi.Build, path: Path) -> None:
    """Known default values must stand at their offsets: the one proof that a struct is laid out as described."""
    dll.llama_context_default_params.restype = _Probe
    context = build.context_params.from_buffer_copy(bytes(dll.llama_context_default_params().raw))
    wrong = [*_differences(context, abi.CONTEXT_DEFAULTS)]
    dll.llama_model_default_params.restype = _Probe
    model = abi.ModelParams.from_buffer_copy(bytes(dll.llama_model_default_params().raw))
    wrong += _differences(model, abi.MODEL_DEFAULTS)
    token = C.c_int32()
    batch = dll.llama_batch_get_one(C.addressof(token), 7)
    wrong += _differences(batch, {"n_tokens": 7, "token": C.addressof(token), "embd": None, "logits": None})
    if wrong:
        raise LibraryError(
            f"{path} says it is llama.cpp {build.version}, but its structs are laid out differently "
            f"({'; '.join(wrong[:3])}). Fix it with: {FIX}"
        )
    dll.llama_context_default_params.restype = build.context_params
    dll.llama_model_default_params.restype = abi.ModelParams
    dll.llama_init_from_model.restype = C.c_void_p
    dll.llama_init_from_model.argtypes = (C.c_void_p, build.context_params)


def _differences(struct: C.Structure, expected: Mapping[str, object]) -> Iterator[str]:
    for name, value in expected.items():
        found = getattr(struct, name)
        if found != value:
            yield f"{name} is {found}, not {value}"


def _known() -> str:
    return ", ".join(f"{build.version} ({build.seen_in})" for build in abi.BUILDS)
