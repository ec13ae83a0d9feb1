"""What the figures were measured on."""

import re
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

from lab.bench.facts import machine
from lab.bench.table import show_mib
from lab.gpu.rig import XLLAMACPP
from leftoff import __version__

_GPU = ("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader")


def facts(model: Path, llama_server: str) -> list[str]:
    """The model, the machine, both servers: one sentence each."""
    return [f"{model.name}, {show_mib(model.stat().st_size)}", *machine_facts(llama_server)]


def machine_facts(llama_server: str) -> list[str]:
    """The facts of the machine alone, without a model."""
    return [
        f"{_gpus()}; {machine()}, {_ram_gb():.0f} GB of RAM",
        f"leftoff {__version__}",
        f"llama-server: {_peer_version(llama_server)}",
    ]


def _gpus() -> str:
    if not shutil.which(_GPU[0]):
        return "no NVIDIA GPU"
    said = subprocess.run(_GPU, capture_output=True, text=True, check=False).stdout.strip()
    return "; ".join(f"{name} ({memory}, driver {driver})" for name, memory, driver in _fields(said)) or "no NVIDIA GPU"


def _fields(table: str) -> list[list[str]]:
    rows = [[cell.strip() for cell in line.split(",")] for line in table.splitlines()]
    return [row for row in rows if len(row) == 3]


def _ram_gb() -> float:
    found = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return int(found[1]) * 1024 / 1e9 if found else 0.0


def _peer_version(llama_server: str) -> str:
    if llama_server == XLLAMACPP:
        return f"that of the xllamacpp wheel, {version('xllamacpp')}"
    ran = subprocess.run([llama_server, "--version"], capture_output=True, text=True, check=False)
    lines = [line for line in (ran.stdout + ran.stderr).splitlines() if line.startswith("version:")]
    return lines[0].removeprefix("version:").strip() if lines else "of an unknown version"
