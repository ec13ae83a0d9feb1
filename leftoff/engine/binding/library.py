"""Opens a shared library that exports the llama.h C API, checks that its structs are known, and captures its log.

Knows nothing of models or contexts. A library that is missing, too old or laid out in an unknown way raises a
`LibraryError` that says what was found, what is needed and the command that fixes it; it never crashes the process.
`search.py` says where libraries are looked for.
"""

import ctypes as C
import functools
import logging
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from blake3 import blake3

from leftoff.engine.binding import abi
from leftoff.engine.binding.backends import load_backends
from leftoff.engine.binding.image import read_image, this_platform
from leftoff.engine.binding.search import ENVIRONMENT, found_libraries
from leftoff.engine.binding.spins import spins_chosen
from leftoff.engine.errors import LibraryError
from leftoff.engine.fingerprint import file_fingerprint

logger = logging.getLogger(__name__)
llama_logger = logging.getLogger("leftoff.llama")

FIX = "pip install --force-reinstall xllamacpp==2026.10.11549"

# Large enough for any of the structs that llama.cpp returns by value, so that an unknown one cannot overrun it.
_PROBE_BYTES = 512

# ggml_log_level; 5 continues the line before it. llama.cpp's "info" is detail that few people want to read.
_LOG_LEVELS = {1: logging.DEBUG, 2: logging.DEBUG, 3: logging.WARNING, 4: logging.ERROR}
_CONTINUES = 5
# Warnings of what must be so: of recurrent memory at each picture whose tokens share a position, and of a model whose
# vocabulary is held apart.
_MUST_BE = ("non-consecutive token position", "dummy tokens")
_KEPT_ERRORS = 8

# What the loader says of a library that another one needs, and where small systems get it from.
_NOT_FOUND = re.compile(r"(lib\S+\.so\S*): cannot open shared object file")
_SYSTEM_PACKAGES = {"libgomp.so.1": "it by apt-get install libgomp1, dnf install libgomp or apk add libgomp"}


class _Probe(C.Structure):
    _fields_ = (("raw", C.c_uint8 * _PROBE_BYTES),)


class _ThreadLog(threading.local):
    """The lines of llama.cpp on one thread: the unfinished one and its level, and those that are kept."""

    def __init__(self) -> None:
        self.partial = ""
        self.level = logging.DEBUG
        self.errors: list[str] = []
        self.collected: list[str] | None = None


class LogCapture:
    """Turns llama.cpp's log callbacks, pieces of lines from any thread, into records of the logger `leftoff.llama`.

    The last errors are kept as well: llama.cpp returns a code, and only its log says why. It logs on the thread that
    calls it, so each thread has its own: several models share a process, and one loads while another decodes.
    """

    def __init__(self) -> None:
        self._own = _ThreadLog()
        self.callback = abi.LogCallback(self._receive)  # llama.cpp keeps a pointer to it: must live as long

    def take_errors(self) -> str:
        """Errors that this thread has logged since its last call, as one line."""
        errors, self._own.errors = self._own.errors, []
        return "; ".join(errors)

    @contextmanager
    def collected(self) -> Iterator[list[str]]:
        """Takes all lines of this thread out of the log: only there llama.cpp tells the sizes of its buffers."""
        lines: list[str] = []
        self._own.collected = lines
        try:
            yield lines
        finally:
            self._own.collected = None

    def _receive(self, level: int, text: bytes | None, _data: object) -> None:
        own = self._own
        if level != _CONTINUES:
            own.level = _LOG_LEVELS.get(level, logging.DEBUG)
        *lines, own.partial = (own.partial + (text or b"").decode("utf-8", "replace")).split("\n")
        for line in filter(None, map(str.strip, lines)):
            if own.collected is not None:
                own.collected.append(line)
                continue
            if any(warning in line for warning in _MUST_BE):
                continue
            if own.level >= logging.ERROR:
                own.errors = [*own.errors[1 - _KEPT_ERRORS :], line]
            llama_logger.log(own.level, "%s", line)


@dataclass(frozen=True)
class Library:
    """A library that was checked and initialised. `dll` has every function of `abi.FUNCTIONS`, typed.

    `brief` calls the same functions without releasing the GIL: for calls so short that getting it back takes longer.
    """

    dll: C.CDLL
    brief: C.PyDLL
    path: Path
    build: abi.Build
    log: LogCapture = field(repr=False)
    backends: tuple[Path, ...] = ()  # files of its own for what it computes on
    refusals: tuple[str, ...] = ()  # backends beside it that could not be loaded, and why

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of the library and its backends: state saved by one build is never loaded by another."""
        hashes = [*map(file_fingerprint, (self.path, *self.backends))]
        return hashes[0] if len(hashes) == 1 else blake3("".join(hashes).encode()).hexdigest()

    def has(self, function: str) -> bool:
        """Whether the build exports a function of `abi.OPTIONAL`."""
        return hasattr(self.dll, function)

    def problem_without(self, functions: Iterable[str]) -> str:
        """Why something cannot be done that needs these functions; empty if the build has all of them."""
        missing = next((name for name in functions if not self.has(name)), "")
        return f"{self.path} (llama.cpp {self.build.version}) lacks {missing}: take another build" if missing else ""

    @property
    def system_info(self) -> str:
        info: bytes = self.dll.llama_print_system_info()
        return info.decode().strip(" |")


@functools.cache
def load_library() -> Library:
    """The library named by the environment; else the first usable one that is found on this machine."""
    refusals = []
    for candidate in found_libraries():
        try:
            return open_library(candidate.path)
        except LibraryError as error:
            if candidate.source == ENVIRONMENT:
                raise
            logger.warning("%s", error)
            refusals.append(str(error))
    tried = "\n".join(refusals) or f"none is installed. Fix it with: {FIX}"  # a refusal has its own way out
    raise LibraryError(f"no usable llama.cpp library: {tried}")


def open_library(path: Path) -> Library:
    """Opens a library file and initialises it, after checking its platform, functions and struct layouts."""
    if not path.is_file():
        raise LibraryError(f"there is no llama.cpp library at {path}: set {ENVIRONMENT} to a file, or run: {FIX}")
    _check_platform(path)
    with spins_chosen():
        return _load(path)


def _load(path: Path) -> Library:
    try:
        name = str(path.absolute())  # a bare one would be searched for elsewhere
        dll, brief = C.CDLL(name), C.PyDLL(name)
    except OSError as error:
        way_out = _missing_library(str(error)) or f"rebuild it for this machine, or run: {FIX}"
        raise LibraryError(f"{path} cannot be loaded ({error}): {way_out}") from error
    _check_names(dll, path)
    _bind(dll)
    _bind(brief)
    build = _identify(dll, path)
    log = LogCapture()
    dll.llama_log_set(log.callback, None)
    backends, refusals = _give_backends(dll, path)
    dll.llama_backend_init()
    return Library(dll, brief, path, build, log, backends, refusals)


def _missing_library(reason: str) -> str:
    """How to get a library of the system that llama.cpp needs; empty if none is missing."""
    match = _NOT_FOUND.match(reason)
    if match is None:
        return ""
    package = _SYSTEM_PACKAGES.get(match[1], "the package that has it")
    return f"{match[1]} is missing on this machine: install {package}"


def _check_platform(path: Path) -> None:
    image = read_image(path)
    if image and this_platform() not in image.platforms:
        built_for = " and ".join(map(str, image.platforms))
        raise LibraryError(
            f"{path} is a library for {built_for}, and this machine is {this_platform()}. "
            f"Take one that is built for it, or run: {FIX}"
        )


def _check_names(dll: C.CDLL, path: Path) -> None:
    """Looks all functions up. `dlsym` searches what the library depends on as well, such as libggml."""
    needed = [*abi.FUNCTIONS, *abi.CONTEXT_FUNCTIONS]
    missing = [name for name in needed if not hasattr(dll, name)]
    if missing:
        raise LibraryError(
            f"{path} lacks {len(missing)} of the {len(needed)} functions leftoff calls (first: {missing[0]}): "
            f"it is too old or not llama.cpp. Known builds: {_known()}. Fix it with: {FIX}"
        )


def _bind(dll: C.CDLL) -> None:
    for name, cpp_name in abi.CPP_NAMES.items():
        if not hasattr(dll, name) and hasattr(dll, cpp_name):
            setattr(dll, name, getattr(dll, cpp_name))
    for name, (result, arguments) in (abi.FUNCTIONS | abi.OPTIONAL).items():
        if hasattr(dll, name):
            function = getattr(dll, name)
            function.restype, function.argtypes = result, arguments


def _identify(dll: C.CDLL, path: Path) -> abi.Build:
    """The build whose structs are laid out as the library's, and types the functions that use them.

    The proof of a layout is that known default values stand at their offsets; a version only says which to try first.
    """
    version = dll.llama_version().decode("utf-8", "replace")
    wrong = [*_wrong_structs(dll)]
    dll.llama_context_default_params.restype = _Probe
    defaults = bytes(dll.llama_context_default_params().raw)
    layouts = sorted(abi.BUILDS, key=lambda build: build.version != version)
    differences = [
        [*_differences(build.context_params.from_buffer_copy(defaults), abi.CONTEXT_DEFAULTS)] for build in layouts
    ]
    build = next((build for build, different in zip(layouts, differences, strict=True) if not different), None)
    if wrong or build is None:
        raise LibraryError(
            f"{path} is llama.cpp {version}, whose structs are laid out in a way that leftoff does not know "
            f"({'; '.join((wrong or differences[0])[:3])}). Known: {_known()}. Fix it with: {FIX}"
        )
    dll.llama_context_default_params.restype = build.context_params
    dll.llama_init_from_model.restype = C.c_void_p
    dll.llama_init_from_model.argtypes = (C.c_void_p, build.context_params)
    if build.version == version:
        return build
    logger.warning(
        "%s is llama.cpp %s, which was not tried yet; its structs are those of %s, so it is used",
        path,
        version,
        build.version,
    )
    return abi.Build(version, build.context_params, f"the layout of {build.version}")


def _wrong_structs(dll: C.CDLL) -> Iterator[str]:
    """Fields of `llama_model_params` and `llama_batch`, equal in all known builds, that are misplaced in this one."""
    dll.llama_model_default_params.restype = _Probe
    model = abi.ModelParams.from_buffer_copy(bytes(dll.llama_model_default_params().raw))
    dll.llama_model_default_params.restype = abi.ModelParams
    yield from _differences(model, abi.MODEL_DEFAULTS)
    token = C.c_int32()
    batch = dll.llama_batch_get_one(C.addressof(token), 7)
    yield from _differences(batch, {"n_tokens": 7, "token": C.addressof(token), "embd": None, "logits": None})


def _differences(struct: C.Structure, expected: Mapping[str, object]) -> Iterator[str]:
    for name, value in expected.items():
        found = getattr(struct, name)
        if found != value:
            yield f"{name} is {found}, not {value}"


def _give_backends(dll: C.CDLL, path: Path) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Loads the backends beside a library that has none in itself: their files, and why others could not be loaded."""
    if dll.ggml_backend_dev_count():
        return (), ()
    loaded = load_backends(dll, path)
    if not dll.ggml_backend_dev_count():
        reason = "; ".join(loaded.refusals) or "there is no libggml-cpu beside it"
        raise LibraryError(f"{path} has nothing to compute on: {reason}. Fix it with: {FIX}")
    for refusal in loaded.refusals:
        logger.warning("%s: %s", path, refusal)
    return tuple(loaded.files), tuple(loaded.refusals)


def _known() -> str:
    return ", ".join(f"{build.version} ({build.seen_in})" for build in abi.BUILDS)
