"""`leftoff doctor` checks the llama.cpp library, describes this machine and a model, and measures the model."""

import argparse
import dataclasses
import json
import sys
from contextlib import closing
from pathlib import Path

from rich.console import Console

from leftoff import __version__
from leftoff.cli.flags import CommandLine, add_json, positive
from leftoff.cli.loading import hint_at_engine
from leftoff.cli.progress import BeginStage, show_stages
from leftoff.cli.report import ModelReport, describe, describe_model, report_keys, show_head, show_report
from leftoff.cli.terminal import terminal
from leftoff.config import smallest_batch
from leftoff.engine.binding.library import load_library
from leftoff.engine.context import ContextSettings
from leftoff.engine.eagle import HeadFile, read_head
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.fit import shortage_explained
from leftoff.engine.model import Model
from leftoff.engine.model_settings import ModelSettings
from leftoff.hub.reference import default_model, find_model
from leftoff.setting import SettingError

_ALL_LAYERS = -1


def add_parser(subparsers: "argparse._SubParsersAction[CommandLine]") -> None:
    """Adds the command `doctor`."""
    parser = subparsers.add_parser(
        "doctor",
        description="Shows the llama.cpp library, this machine, and the memory and the speed of a model.",
        epilog="keys of --json: "
        + ", ".join(report_keys())
        + ". Of an EAGLE-3 head: leftoff, head. On failure only: error.",
    )
    parser.add_argument(
        "model",
        metavar="MODEL",
        nargs="?",
        help="GGUF file, org/repo[:quant] of the hub or a name of `leftoff models` (default: the model that comes with "
        "leftoff)",
    )
    parser.add_argument("--ctx", metavar="TOKENS", type=positive, help="context to open the model with (default: 8192)")
    parser.add_argument(
        "--threads", metavar="N", type=positive, help="compute threads (default: one per physical core)"
    )
    parser.add_argument(
        "--gpu-layers", metavar="N", type=int, default=_ALL_LAYERS, help="layers to put on a GPU (default: all)"
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Examines library, machine and model; returns the exit code."""
    console = terminal()
    is_watched = sys.stdout.isatty() and not args.json
    with show_stages(console, visible=is_watched) as begin:
        path = find_model(args.model, begin) if args.model else default_model()
    if (head := read_head(path)) is not None:
        return _tell_of_head(console, head, is_json=args.json)
    library = load_library()
    with show_stages(console, visible=is_watched) as begin:
        model = _examine(path, _settings(args), args.gpu_layers, begin)
    report = describe(library, model)
    if args.json:
        print(json.dumps(dataclasses.asdict(report)))
    else:
        show_report(console, report)
        hint_at_engine(console, library)
    return 0


def _tell_of_head(console: Console, head: HeadFile, *, is_json: bool) -> int:
    """Describes a head, which is no model: nothing of it can be measured without the one that it is for."""
    if is_json:
        print(json.dumps({"leftoff": __version__, "head": dataclasses.asdict(head)}))
    else:
        show_head(console, head)
    return 0


def _settings(args: argparse.Namespace) -> ContextSettings:
    """The engine's defaults, where no flag was given."""
    if args.ctx is not None and args.ctx < (least := smallest_batch(1)):
        raise SettingError(f"--ctx {args.ctx}: must be at least {least}")
    asked = {"num_cells": args.ctx, "threads": args.threads}
    return ContextSettings(**{name: value for name, value in asked.items() if value is not None})


def _examine(path: Path, settings: ContextSettings, gpu_layers: int, begin: BeginStage) -> ModelReport:
    loading = begin(f"loading {path.name}")
    where = ModelSettings(gpu_layers=gpu_layers)
    with shortage_explained(path, where, settings), closing(Model(path, where, progress=loading)) as model:
        begin("hashing the file")
        _ = model.fingerprint  # computed here, so that the progress bar names it: the first time it is slow
        begin("probing its memory")
        with LlamaEngine(model, settings) as engine:
            return describe_model(engine, begin("measuring"))
