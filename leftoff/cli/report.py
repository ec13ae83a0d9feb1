"""The report of `leftoff doctor`, as data and as tables. Its fields are the keys of `--json`: their names stay."""

import platform
from dataclasses import dataclass, fields, is_dataclass
from typing import get_args, get_type_hints

from rich.console import Console

from leftoff import __version__
from leftoff.cli.terminal import Rows, show_rows
from leftoff.engine.binding.library import Library
from leftoff.engine.devices import all_devices
from leftoff.engine.eagle import HeadFile
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.fingerprint import model_parts
from leftoff.engine.measure import Bandwidth, Measurements, measure
from leftoff.engine.memory.base import MEANINGS, MemoryKind, token_bytes
from leftoff.engine.model import Progress
from leftoff.engine.mtp import mtp_problem
from leftoff.machine import default_threads, physical_ram
from leftoff.units import show_bandwidth, show_bytes, show_count, show_rate

_SHORT_FINGERPRINT = 16


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
    """This machine. `threads` is the default number of compute threads."""

    system: str
    python: str
    threads: int
    memory_bytes: int


@dataclass(frozen=True)
class ModelReport:
    """One model file and the size of its memory. A value is null if this kind of memory does not have it."""

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
    mtp_problem: str  # why no drafts are made with a next-token layer; empty if they are
    fingerprint: str
    measurements: Measurements


@dataclass(frozen=True)
class Report:
    """The whole report."""

    leftoff: str
    library: LibraryReport
    machine: MachineReport
    model: ModelReport


def describe(library: Library, model: ModelReport) -> Report:
    """The whole report of the doctor."""
    return Report(__version__, _describe_library(library), _describe_machine(), model)


def describe_model(engine: LlamaEngine, progress: Progress) -> ModelReport:
    """Describes a loaded model and measures its speed."""
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
        kv_bytes_per_token=token_bytes(memory),
        snapshot_bytes_at_1k=memory.snapshot_bytes(1 << 10) if has_snapshots else None,
        snapshot_bytes_at_32k=memory.snapshot_bytes(32 << 10) if has_snapshots else None,
        mtp_problem=mtp_problem(model.library, model.path),
        fingerprint=memory.fingerprint,
        measurements=measure(engine, progress=progress),
    )


def report_keys(record: type = Report, prefix: str = "") -> list[str]:
    """Every key of the JSON with its path, such as `library.version`."""
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
        devices=tuple(map(str, all_devices(library))),
        gpu_offload=bool(library.dll.llama_supports_gpu_offload()),
    )


def _describe_machine() -> MachineReport:
    return MachineReport(
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        threads=default_threads(),
        memory_bytes=physical_ram(),
    )


def _features(system_info: str) -> tuple[str, ...]:
    """The names that are on in `CPU : AVX2 = 1 | FMA = 1 | …`."""
    flags = (part.rpartition(":")[2].partition("=") for part in system_info.split("|"))
    return tuple(name.strip() for name, _, value in flags if value.strip() == "1")


def show_report(console: Console, report: Report) -> None:
    """Prints a report as tables."""
    show_table(console, f"leftoff {report.leftoff}", _library_rows(report.library) + _machine_rows(report.machine))
    show_table(console, "model", _model_rows(report.model))
    show_table(console, "measured here", _measured_rows(report.model.measurements))


def show_head(console: Console, head: HeadFile) -> None:
    """Prints what a head is, and for which model."""
    layers = ", ".join(map(str, head.layers)) or "not told"
    sizes = f"{head.model_tokens:,} tokens, hidden states of {head.model_width:,} numbers, inputs of layers {layers}"
    rows = [
        ("architecture", f"{head.architecture}: an EAGLE-3 head, which drafts for a model and cannot run alone"),
        ("for the model", head.model_name or "the file does not name it"),
        ("which has", sizes),
        ("file", f"{show_bytes(head.file_bytes)}, {head.path}"),
        ("how to use it", f"leftoff serve MODEL --model-draft {head.path}"),
    ]
    show_table(console, "head", rows)


def show_table(console: Console, title: str, rows: Rows) -> None:
    """Prints rows of a label and a value."""
    console.print(title, style="bold")
    show_rows(console, rows)
    console.print()


def _library_rows(library: LibraryReport) -> Rows:
    return [
        ("library", library.path),
        ("llama.cpp", f"{library.version} (known from {library.known_from})"),
        ("CPU features", " ".join(library.cpu_features) or "none reported"),
        ("devices", "\n".join(library.devices) or "none reported"),
        ("GPU offload", "yes" if library.gpu_offload else "no: this build computes on the CPU"),
    ]


def _machine_rows(machine: MachineReport) -> Rows:
    return [
        ("machine", f"{machine.system}, {show_bytes(machine.memory_bytes)} of memory"),
        ("threads", f"{machine.threads} by default"),
        ("Python", machine.python),
    ]


def _model_rows(model: ModelReport) -> Rows:
    kv_bytes = model.kv_bytes_per_token
    return [
        ("name", model.name),
        ("architecture", model.architecture),
        ("parameters", show_count(model.parameters)),
        ("file", f"{show_bytes(model.file_bytes)}, {model.path}"),
        ("memory kind", f"{model.memory_kind}. {MEANINGS[MemoryKind(model.memory_kind)]}"),
        ("context", f"{model.context:,} tokens here; trained for {model.trained_context:,}"),
        ("KV per token", "none: this memory has no pages" if kv_bytes is None else show_bytes(kv_bytes)),
        ("snapshot", _snapshot_text(model)),
        ("MTP drafts", f"none: {model.mtp_problem}" if model.mtp_problem else "yes, where they pay"),
        ("fingerprint", f"{model.fingerprint[:_SHORT_FINGERPRINT]}…"),
    ]


def _measured_rows(measured: Measurements) -> Rows:
    prefill = measured.prefill
    return [
        ("prefill", f"{show_rate(prefill.tokens_per_s)} ({prefill.num_tokens} tokens at once)"),
        ("decode", f"{show_rate(measured.decode_tokens_per_s)} (one sequence)"),
        ("pages", _bandwidth_text(measured.page)),
        ("snapshots", _bandwidth_text(measured.snapshot)),
        ("plain copy", show_bandwidth(measured.memcpy_bytes_per_s)),
    ]


def _snapshot_text(model: ModelReport) -> str:
    short, long = model.snapshot_bytes_at_1k, model.snapshot_bytes_at_32k
    if short is None or long is None:
        return "none: pages are all of this memory"
    if short == long:
        return f"{show_bytes(short)} at any length"
    return f"{show_bytes(short)} after 1k tokens, {show_bytes(long)} after 32k"


def _bandwidth_text(bandwidth: Bandwidth | None) -> str:
    if bandwidth is None:
        return "none"
    save, load = show_bandwidth(bandwidth.save_bytes_per_s), show_bandwidth(bandwidth.load_bytes_per_s)
    return f"save {save}, load {load} ({show_bytes(bandwidth.nbytes)} at once)"
