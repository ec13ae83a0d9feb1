"""`leftoff models` lists models by the names that `leftoff serve` takes, and what fits this machine."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass

from rich.table import Table

from leftoff.cli.flags import CommandLine, add_json, positive
from leftoff.cli.loading import quiet_logs
from leftoff.cli.terminal import terminal
from leftoff.config import KV_TYPES
from leftoff.engine.binding.library import load_library
from leftoff.engine.choice import Room
from leftoff.engine.devices import available_ram, default_gpus, free_bytes
from leftoff.engine.fit import MARGIN_BYTES
from leftoff.engine.needs import HOST
from leftoff.engine.reckon import Reckoned, reckon
from leftoff.hub.catalogue import CatalogueModel, catalogue
from leftoff.units import show_bytes

_GIB = 1 << 30
_FOOT = (
    "Context is in tokens, all call tools. {key}leftoff serve NAME downloads it once; the repositories have other "
    "quantisations too: NAME:Q6_K. Reckoned from the facts of {as_of}, about as --fit does once the file is here."
)
_KEY = "partly: experts of some layers stay in RAM; slowly: whole layers do. "


@dataclass(frozen=True)
class Listed:
    """A model in one of its quantisations, and how it would fit."""

    name: str
    model: CatalogueModel
    file_bytes: int
    reckoned: Reckoned


def add_parser(subparsers: "argparse._SubParsersAction[CommandLine]") -> None:
    """Adds the command `models`."""
    parser = subparsers.add_parser(
        "models",
        description="Lists models by the names that `leftoff serve` takes, with the context that fits this machine "
        "now, or another one. No network is asked.",
    )
    parser.add_argument("--vram", metavar="GIB", type=positive, help="as if one GPU with so much free memory were here")
    parser.add_argument("--ram", metavar="GIB", type=positive, help="as if so much RAM were free here")
    parser.add_argument("--kv-type", metavar="TYPE", choices=tuple(KV_TYPES), default="f16", help="as for `serve`")
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the list; returns the exit code."""
    room = _room(args.vram, args.ram)
    found = [*listed(room, args.kv_type)]
    if args.json:
        print(json.dumps({"as_of": catalogue().as_of, "models": [*map(_as_json, found)]}))
        return 0
    console = terminal()
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for title in ("name", "file", "memory", "images"):
        table.add_column(title, no_wrap=True)
    table.add_column("context", justify="right", no_wrap=True)
    table.add_column("fits here")
    for item in found:
        model, fits = item.model, item.reckoned.fits
        context = f"{item.reckoned.choice.num_cells:,}" if fits else ""
        words = (item.name, show_bytes(item.file_bytes), model.kind, "yes" if model.projector else "", context)
        table.add_row(*words, _fit_in_words(item, room), style=None if fits else "dim")
    console.print(f"{_room_in_words(room)}\n", style="bold")
    console.print(table)
    key = _KEY if room.gpus else ""
    console.print(f"\n{_FOOT.format(as_of=catalogue().as_of, key=key)}", style="dim")
    return 0


def listed(room: Room, kv_type: str = "f16") -> Iterator[Listed]:
    """Every model in every quantisation that the catalogue knows, reckoned for a machine."""
    for name, model in catalogue().models.items():
        for number, (quant, file_bytes) in enumerate(model.quants.items()):
            shown = f"{name}:{quant}" if number else name
            yield Listed(shown, model, file_bytes, reckon(model, file_bytes, room, kv_type))


def _room(vram: int | None, ram: int | None) -> Room:
    """The free memory of this machine, or of one that has what is asked for."""
    in_ram = ram * _GIB if ram else available_ram()
    if vram:
        return Room(in_ram, {"GPU": vram * _GIB}, {"GPU": MARGIN_BYTES})
    if ram:
        return Room(in_ram)
    quiet_logs()
    library = load_library()
    gpus = {device.name: free_bytes(library, device) for device in default_gpus(library)}
    return Room(in_ram, gpus, dict.fromkeys(gpus, MARGIN_BYTES))


def _room_in_words(room: Room) -> str:
    free = [*(f"{show_bytes(nbytes)} on {name}" for name, nbytes in room.gpus.items()), f"{show_bytes(room.ram)} RAM"]
    return f"free: {', '.join(free)}"


def _fit_in_words(item: Listed, room: Room) -> str:
    choice, needs = item.reckoned.choice, item.reckoned.needs
    if not item.reckoned.fits:
        return f"no: {show_bytes(sum(map(needs.total, (*room.gpus, HOST))))}"
    if not room.gpus:
        return "on the CPU"
    if choice.gpu_layers <= item.model.layers:
        return "slowly"
    return "partly" if choice.n_cpu_moe else "on the GPU"


def _as_json(item: Listed) -> dict[str, object]:
    choice, needs = item.reckoned.choice, item.reckoned.needs
    return {
        "name": item.name,
        "repo": item.model.repo,
        "kind": item.model.kind,
        "bytes": item.file_bytes,
        "images": item.model.projector,
        "tools": item.model.tools,
        "trained_context": item.model.context,
        "fits": item.reckoned.fits,
        "context": choice.num_cells,
        "gpu_layers": choice.gpu_layers,
        "layers": item.model.layers + 1,
        "n_cpu_moe": choice.n_cpu_moe,
        "needs": {device: needs.total(device) for device in sorted({*needs.weights, *needs.context})},
    }
