"""Prints the disk cache, as tables or as JSON."""

import time
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from leftoff.blobs.blob import Blob
from leftoff.cli.cache_text import excerpts
from leftoff.disk.rebuild import Branch
from leftoff.disk.tools.catalog import BlobPath, Catalog
from leftoff.disk.tools.models import ModelUsage
from leftoff.disk.tools.verify import Findings
from leftoff.units import counted, one_line, printable, show_bytes

_SHORT_NAME = 12
_LATEST = 20
_PREVIEW = 400
_AGES = ((86_400, "days"), (3_600, "hours"), (60, "minutes"))

Results = list[tuple[ModelUsage, Findings]]


def show_model(console: Console, usage: ModelUsage, *, every: bool) -> None:
    """Prints a model and its conversations, most recently used first: the latest, or every one."""
    branches = _branches(usage)
    console.print(one_line(_headline(usage)), style="bold")
    if usage.problem:
        console.print(f"  cannot be read: {one_line(usage.problem)}\n")
        return
    shown = branches if every else branches[:_LATEST]
    table = Table(box=None, header_style="cyan", expand=True)
    for title in ("name", "tokens", "bytes", "used"):
        table.add_column(title, no_wrap=True)
    table.add_column("text", no_wrap=True, overflow="ellipsis", ratio=1)  # takes what the others leave
    texts = excerpts(usage, shown)
    for branch in shown:
        sizes = (f"{branch.num_tokens:,}", show_bytes(branch.nbytes))
        table.add_row(_short(branch.tip), *sizes, show_age(branch.last_used), texts.get(branch.tip.name, ""))
    console.print(table)
    if not texts and shown:
        why = "no server has told where the model file is, or it is no longer there"
        console.print(f"  no text is shown: {why}; `leftoff cache show NAME --text MODEL` shows it", style="dim")
    if len(shown) < len(branches):
        console.print(f"  and {len(branches) - len(shown)} more: --all shows them")
    console.print()


def _kind(blob: Blob) -> str:
    return "snapshot" if blob.is_snapshot else "window page" if blob.is_window_page else "page"


def show_path(console: Console, usage: ModelUsage, blob: Blob, path: BlobPath, text: str) -> None:
    """Prints a blob, and all blobs on the path to its end."""
    what = f"snapshot after {blob.end} tokens" if blob.is_snapshot else f"{_kind(blob)} [{blob.start}, {blob.end})"
    console.print(f"{blob.name}: {what} of {one_line(usage.name)}", style="bold")
    console.print(
        f"{show_bytes(blob.file_bytes)}, used {show_age(blob.last_used)}, {blob.hits} times since it was written"
    )
    table = Table("name", "positions", "", "bytes", "used", box=None, header_style="cyan")
    blobs = sorted([*path.blobs, *path.borrowed], key=lambda other: (other.end, other.start))
    for other in blobs:
        positions = f"{other.end:,}" if other.is_snapshot else f"{other.start:,} … {other.end:,}"
        kind = "page, shared" if other in path.borrowed else _kind(other)
        table.add_row(_short(other), positions, kind, show_bytes(other.file_bytes), show_age(other.last_used))
    console.print(table)
    console.print(f"{path.tokens.size:,} tokens, {show_bytes(sum(other.file_bytes for other in blobs))} on this path")
    if not path.is_whole:
        console.print("no prompt can resume here: pages or snapshots before it are no longer on disk")
    if text:
        console.print(f"\n{printable(_preview(text))}")


def show_findings(console: Console, results: Results, *, is_fixed: bool) -> None:
    """Prints what a verification has found, model by model."""
    for usage, findings in results:
        checked = f"{counted(findings.num_blobs, 'file')}, {show_bytes(findings.nbytes)}"
        bad = len(findings.faults)
        verdict = f"{bad} damaged{', removed' if is_fixed else ''}" if bad else (one_line(findings.note) or "all sound")
        console.print(f"{one_line(usage.name)}: {checked}: {verdict}")
        for fault in findings.faults:
            console.print(f"  {one_line(fault.name)}: {one_line(fault.reason)}")
    if any(findings.faults for _, findings in results) and not is_fixed:
        console.print("`leftoff cache verify --fix` removes what is damaged: it will be computed again")


def findings_json(results: Results) -> dict[str, Any]:
    """The findings of a verification, for `--json`."""
    models = [{"name": usage.name, "path": str(usage.path), **asdict(findings)} for usage, findings in results]
    return {"models": models}


def model_json(usage: ModelUsage) -> dict[str, Any]:
    """A model's folder and its branches, for `--json`."""
    branches = _branches(usage)
    texts = excerpts(usage, branches)
    return {
        **asdict(usage),
        "path": str(usage.path),
        "entries": [
            {
                "name": branch.tip.name,
                "namespace": branch.namespace,
                "tokens": branch.num_tokens,
                "pages": branch.num_pages,
                "snapshots": branch.num_snapshots,
                "nbytes": branch.nbytes,
                "last_used": branch.last_used,
                "text": texts.get(branch.tip.name, ""),
            }
            for branch in branches
        ],
    }


def show_age(moment: float) -> str:
    """How long ago a moment was: `3 hours ago`."""
    age_s = max(0.0, time.time() - moment)
    return next((f"{age_s / unit:.0f} {name} ago" for unit, name in _AGES if age_s >= 2 * unit), "just now")


def _headline(usage: ModelUsage) -> str:
    parts = [
        usage.name,
        counted(usage.num_blobs, "file"),
        show_bytes(usage.nbytes),
        f"used {show_age(usage.last_used)}",
        *([f"in use by process {usage.pid}"] if usage.is_in_use else []),
        str(usage.path),
    ]
    return " · ".join(parts)


def _branches(usage: ModelUsage) -> list[Branch]:
    branches = [] if usage.problem else [*Catalog.of(usage.path).branches()]
    return sorted(branches, key=lambda branch: branch.last_used, reverse=True)


def _short(blob: Blob) -> str:
    return blob.name[:_SHORT_NAME]


def _preview(text: str) -> str:
    """The first and the last characters of a long text."""
    if len(text) <= 2 * _PREVIEW:
        return text
    return f"{text[:_PREVIEW]}\n[… {len(text) - 2 * _PREVIEW:,} characters …]\n{text[-_PREVIEW:]}"
