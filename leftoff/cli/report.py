"""What `leftoff doctor` finds out, as data. The fields are the keys of its `--json` output and stay as they are."""

import os
import platform
from dataclasses import dataclass, fields, is_dataclass
from typing import get_args, get_type_hints

from leftoff import __version__
from leftoff.engine.binding.library import Library
from leftoff.engine.context import default_threads
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.fingerprint import model_parts
from leftoff.engine.measure import Measurements, measure
from leftoff.engine.model import Progress


@dataclass(frozen=True)
class LibraryReport:
    """The llama.cpp library in use."""

    path: str
    version: str
    known_from: str
    cpu_features: tuple[str, ...]
    devices: tuple[str, ...]
    gpu_offload: bool


@dataclass(frozen=True)
class MachineReport:
    """Where it runs. `threads` is how many are used unless told otherwise."""

    system: str
    python: str
    threads: int
    memory_bytes: int


@dataclass(frozen=True)
class ModelReport:
    """One model file and what its memory costs. Null where the kind of memory has no such thing."""

    path: str
    name: str
    architecture: str
    parameters: int
    file_bytes: int
    trained_context: int
    context: int
    threads: int
    memory_kind: str
    kv_bytes_per_token: int | None
    snapshot_bytes_at_1k: int | None
    snapshot_bytes_at_32k: int | None
    fingerprint: str
    measurements: Measurements


@dataclass(frozen=True)
class Report:
    """Everything."""

    leftoff: str
    library: LibraryReport
    machine: MachineReport
    model: ModelReport


def describe(library: Library, model: ModelReport) -> Report:
    return Report(__version__, _describe_library(library), _describe_machine(), model)


def describe_model(engine: LlamaEngine, progress: Progress | None = None) -> ModelReport:
    """Looks at a loaded model, and measures it."""
    model, memory = engine.model, engine.memory
    has_snapshots = memory.kind.has_snapshots
    return ModelReport(
        path=str(model.path),
        name=model.name,
        architecture=model.architecture,
        parameters=model.num_parameters,
        file_bytes=sum(part.stat().st_size for part in model_parts(model.path)),
        trained_context=model.trained_context,
        context=memory.num_cells,
        threads=engine.settings.threads,
        memory_kind=memory.kind.value,
        kv_bytes_per_token=memory.page_bytes(2) - memory.page_bytes(1) if memory.kind.has_pages else None,
        snapshot_bytes_at_1k=memory.snapshot_bytes(1 << 10) if has_snapshots else None,
        snapshot_bytes_at_32k=memory.snapshot_bytes(32 << 10) if has_snapshots else None,
        fingerprint=memory.fingerprint,
        measurements=measure(engine, progress=progress),
    )


def report_keys(record: type = Report, prefix: str = "") -> list[str]:
    """Every key, with the path to it: `library.version`."""
    keys = []
    for name, hint in ((field.name, get_type_hints(record)[field.name]) for field in fields(record)):
        inner = next((kind for kind in (hint, *get_args(hint)) if is_dataclass(kind)), None)
        keys += report_keys(inner, f"{prefix}{name}.") if isinstance(inner, type) else [prefix + name]
    return keys


def _describe_library(library: Library) -> LibraryReport:
    return LibraryReport(
        path=str(library.path),
        version=library.build.version,
        known_from=library.build.seen_in,
        cpu_features=_features(library.system_info),
        devices=library.devices,
        gpu_offload=bool(library.dll.llama_supports_gpu_offload()),
    )


def _describe_machine() -> MachineReport:
    return MachineReport(
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        threads=default_threads(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
    )


def _features(system_info: str) -> tuple[str, ...]:
    """The names that are on in `CPU : AVX2 = 1 | FMA = 1 | …`."""
    flags = (part.rpartition(":")[2].partition("=") for part in system_info.split("|"))
    return tuple(name.strip() for name, _, value in flags if value.strip() == "1")
