"""`leftoff engine` shows the llama.cpp library in use and installs prebuilt ones for this machine's GPU."""

import argparse
import dataclasses
import json
import sys
from contextlib import closing
from pathlib import Path

from rich.console import Console

from leftoff.cli.flags import CommandLine, add_action, add_json
from leftoff.cli.loading import hint_at_engine, quiet_logs
from leftoff.cli.progress import show_stages
from leftoff.cli.report import show_table
from leftoff.cli.signals import ended_by_signals
from leftoff.cli.terminal import Rows, terminal
from leftoff.engine.binding.image import this_platform
from leftoff.engine.binding.library import Library, load_library
from leftoff.engine.binding.search import InstalledEngine, engines_folder, found_libraries, installed_engines
from leftoff.engine.devices import DeviceMemory, device_memory
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.errors import EngineError, LibraryError
from leftoff.engine.hardware import best_engine, cuda_engine, find_gpus
from leftoff.engine.install.install import Trial, choose, install, remove
from leftoff.engine.install.packages import PACKAGES, Package, package_for
from leftoff.engine.model import Model
from leftoff.hub.reference import default_model
from leftoff.units import show_bytes

_CUDA = "cuda"
_CUDA_PLATFORMS = {package.platform for package in PACKAGES if package.name.startswith(_CUDA)}
_KINDS = (_CUDA, *dict.fromkeys(package.name for package in PACKAGES))


def add_parser(subparsers: "argparse._SubParsersAction[CommandLine]") -> None:
    """Adds the command `engine`."""
    parser = subparsers.add_parser(
        "engine",
        description="Shows the llama.cpp library in use, its devices, and what else is on this machine.",
    )
    parser.set_defaults(run=_show)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions")
    installing = add_action(actions, "install", "download a prebuilt engine for this machine, and use it from now on")
    installing.add_argument(
        "kind",
        metavar="KIND",
        nargs="?",
        choices=_KINDS,
        help=f"one of {', '.join(_KINDS)} (default: what fits this machine)",
    )
    installing.add_argument(
        "--from", dest="given", metavar="FOLDER", type=Path, help="take the archives from this folder: no network"
    )
    installing.set_defaults(run=_install)
    removing = add_action(actions, "remove", "remove an engine that was installed")
    removing.add_argument("name", metavar="NAME", nargs="?", help="which one (default: the one in use)")
    removing.set_defaults(run=_remove)
    checking = add_action(actions, "check", "try the library in use: save and load the state of a small model")
    add_json(checking)
    checking.set_defaults(run=_check)


def _show(_args: argparse.Namespace) -> int:
    console = terminal()
    try:
        library = load_library()
    except LibraryError as error:
        show_table(console, "engine", [("in use", f"none: {error}")])
        show_table(console, "on this machine", _machine_rows())
        return 0
    show_table(console, "engine", _library_rows(library))
    show_table(console, "on this machine", _machine_rows(library.path))
    hint_at_engine(console, library)
    return 0


def _library_rows(library: Library) -> Rows:
    return [
        ("in use", str(library.path)),
        ("llama.cpp", f"{library.build.version} ({library.build.seen_in})"),
        ("devices", "\n".join(map(_device_text, device_memory(library)))),
        *([("not loaded", "\n".join(library.refusals))] if library.refusals else []),
    ]


def _machine_rows(in_use: Path | None = None) -> Rows:
    others = [found for found in found_libraries() if found.path != in_use]
    return [
        ("platform", str(this_platform())),
        ("GPUs", "\n".join(gpu.name for gpu in find_gpus()) or "none found"),
        ("installed", "\n".join(map(_engine_text, installed_engines())) or "nothing: leftoff engine install"),
        ("other libraries", "\n".join(f"{other.path} ({other.source})" for other in others) or "none"),
        (
            "to install",
            ", ".join(package.name for package in PACKAGES if package.platform == this_platform()) or "none",
        ),
    ]


def _device_text(device: DeviceMemory) -> str:
    text = f"{device.name} ({device.description})"
    if not device.total_bytes:
        return text
    return f"{text}, {show_bytes(device.free_bytes)} free of {show_bytes(device.total_bytes)}"


def _engine_text(engine: InstalledEngine) -> str:
    return f"{engine.name} ({', '.join(engine.made_from)}), {show_bytes(engine.nbytes)} in {engine.folder}"


def _install(args: argparse.Namespace) -> int:
    console = terminal()
    package = package_for(_resolved(args.kind), this_platform())
    made_from = tuple(map(str, package.archives))
    present = next((engine for engine in installed_engines() if engine.name == package.name), None)
    if present and {*present.made_from} <= {*made_from}:
        choose(package.name)
        console.print(f"{package.name} is installed already, and in use from now on: {present.folder}")
        return 0
    console.print(f"installing {package.name} for {package.platform}: {', '.join(made_from)}")
    with ended_by_signals(), show_stages(console, visible=sys.stdout.isatty()) as begin:
        trial = install(package, begin, args.given)
    _show_trial(console, package, trial)
    return 0


def _resolved(kind: str | None) -> str:
    if kind is None:
        return best_engine(find_gpus())
    return cuda_engine() if kind == _CUDA and this_platform() in _CUDA_PLATFORMS else kind


def _show_trial(console: Console, package: Package, trial: Trial) -> None:
    console.print(f"installed in {engines_folder() / package.name}: llama.cpp {trial.version}, used from now on")
    for device in trial.devices:
        console.print(f"  {_device_text(device)}")
    if package.name != "cpu" and not trial.has_gpu:
        reasons = "; ".join(trial.refusals) or "the engine sees none"
        console.print(f"It computes on the CPU until it finds a GPU ({reasons}). It needs {package.wants}.")


def _remove(args: argparse.Namespace) -> int:
    engines = installed_engines()
    named = [engine for engine in engines if engine.name == args.name] if args.name else engines[:1]
    if not named:
        have = ", ".join(engine.name for engine in engines)
        wanted = f"{args.name} is not installed" if args.name else "no engine is installed"
        raise EngineError(f"{wanted}{f': there are {have}' if have else ''}")
    remove(named[0])
    terminal().print(f"removed {named[0].name} from {named[0].folder}")
    return 0


def _check(args: argparse.Namespace) -> int:
    """Runs in the process that it was called in: a library that crashes ends it."""
    quiet_logs()
    library = load_library()
    with closing(Model(default_model())) as model, LlamaEngine(model) as engine:
        kind = engine.memory.kind.value
    if args.json:
        told = {"path": str(library.path), "version": library.build.version, "refusals": library.refusals}
        devices = [dataclasses.asdict(device) for device in device_memory(library)]
        print(json.dumps(told | {"devices": devices, "memory_kind": kind}))
    else:
        console = terminal()
        rows = [*_library_rows(library), ("round trip", f"saved and loaded {kind} state exactly")]
        show_table(console, "engine", rows)
    return 0
