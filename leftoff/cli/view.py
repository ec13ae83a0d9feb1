"""A doctor's report as people read it."""

from rich.console import Console
from rich.table import Table

from leftoff.cli.report import LibraryReport, MachineReport, ModelReport, Report
from leftoff.cli.units import printable, show_bandwidth, show_bytes, show_count, show_rate
from leftoff.engine.measure import Bandwidth, Measurements
from leftoff.engine.memory.base import MemoryKind

_SHORT_FINGERPRINT = 16

MEANINGS = {
    MemoryKind.ATTENTION: "It can be cut back to any position: pages alone bring back every shared beginning.",
    MemoryKind.HYBRID: "Its attention can be cut back, its recurrent state cannot: "
    "a prompt resumes where a snapshot was taken, and shares pages before it.",
    MemoryKind.RECURRENT: "It is one state that cannot be cut back: a prompt resumes only where a snapshot was taken. "
    "A snapshot has the same size after any number of tokens.",
    MemoryKind.WINDOW: "Its sliding window forgets what left it: "
    "a prompt resumes where a snapshot of the window was taken, and shares pages before it.",
    MemoryKind.OPAQUE: "It is saved and loaded only as a whole: "
    "a prompt resumes where a snapshot was taken, and snapshots grow with the prompt and share nothing.",
}

Rows = list[tuple[str, str]]


def show_report(console: Console, report: Report) -> None:
    console.print(_table(f"leftoff {report.leftoff}", _library_rows(report.library) + _machine_rows(report.machine)))
    console.print(_table("model", _model_rows(report.model)))
    console.print(_table("measured here", _measured_rows(report.model.measurements)))


def _table(title: str, rows: Rows) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", show_header=False, min_width=60)
    table.add_column(style="cyan", no_wrap=True)
    table.add_column(overflow="fold")  # a path that is cut off helps nobody
    for label, value in rows:
        table.add_row(label, printable(value))
    return table


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
    return [
        ("name", model.name),
        ("architecture", model.architecture),
        ("parameters", show_count(model.parameters)),
        ("file", f"{show_bytes(model.file_bytes)}, {model.path}"),
        ("memory kind", f"{model.memory_kind}. {MEANINGS[MemoryKind(model.memory_kind)]}"),
        ("context", f"{model.context:,} tokens here; trained for {model.trained_context:,}"),
        ("KV per token", _bytes_or(model.kv_bytes_per_token, "none: this memory has no pages")),
        ("snapshot", _snapshot_text(model)),
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


def _bytes_or(nbytes: int | None, absent: str) -> str:
    return absent if nbytes is None else show_bytes(nbytes)
