"""What one must know to judge a comparison, or to make it again."""

import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

from lab.bench.workload import Setup, Workload
from leftoff import __version__

_USUAL = Setup()
_PEER = (
    "llama-server: the one of the xllamacpp wheel, {version}, over the same library, with the same model, slots, "
    "context and threads, `--cache-ram` equal to `--ram`, unified KV, and its defaults otherwise: 32 checkpoints per "
    "slot, at least 8,192 tokens apart, idle slots kept in RAM"
)
_NOTES = {
    "volatile": "the unavoidable is counted without the line that changes; leftoff drops it by default",
    "restart": "both servers get SIGTERM; leftoff has its tree on disk, llama-server keeps nothing by itself "
    "(`--slot-save-path` has a client save and restore every slot by hand)",
    "window": "leftoff has `--overflow cut`; llama-server refuses a prompt that does not fit, and the client drops "
    "its oldest turn and asks again, as chat programs do; the unavoidable is that of a cut to half the window",
}

_OTHER_LEFTOFFS = {
    "cold": "told to forget everything before each request (`--no-read-ahead`)",
    "deterministic": "with `--deterministic`",
}


def facts(model: Path, threads: int, workloads: Sequence[Workload], sides: Sequence[str], num_rounds: int) -> list[str]:
    return [
        f"{model.name}, {_counted(threads, 'thread')}, {machine()}",
        f"leftoff {__version__}: `leftoff serve {_flags(_USUAL)}`{_exceptions(workloads)}",
        *([_PEER.format(version=version("xllamacpp"))] if "llama-server" in sides else []),
        *(f"{side}: the same leftoff, {_OTHER_LEFTOFFS[side]}" for side in sides if side in _OTHER_LEFTOFFS),
        how(num_rounds),
        *(f"{workload.title}: {_NOTES[workload.name]}" for workload in workloads if workload.name in _NOTES),
    ]


def how(num_rounds: int) -> str:
    spread = "medians (lowest … highest)" if num_rounds > 1 else "nothing is repeated, so the times say little"
    return (
        f"{_counted(num_rounds, 'round')}, the servers in turn, started anew for every workload: {spread}. "
        "Times are the client's; the unavoidable is counted between the requests, outside of the wall time. "
        "What leftoff reads while idle counts as computed"
    )


def _exceptions(workloads: Sequence[Workload]) -> str:
    others = "; ".join(
        f"{workload.title}: `{flags}`" for workload in workloads for flags in _other_flags(workload.setup)
    )
    return f" ({others})" if others else ""


def _other_flags(setup: Setup) -> Iterator[str]:
    usual = asdict(_USUAL)
    differing = {name: value for name, value in asdict(setup).items() if value != usual[name]}
    if differing:
        yield " ".join("--overflow cut" if name == "cuts" else f"--{name} {value}" for name, value in differing.items())


def _flags(setup: Setup) -> str:
    return f"--slots {setup.slots} --ctx {setup.ctx} --ram {setup.ram} --disk {setup.disk}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}"


def machine() -> str:
    return f"{_processor()}, {os.cpu_count()} CPUs, {platform.system()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())
