"""`python -m lab.gpu` measures leftoff and llama-server on one GPU, and writes the figures into docs/benchmarks.md.

    python -m lab.gpu model m8b.gguf                                        a random model of real size
    python -m lab.gpu --model m8b.gguf --llama-server llama-server --json gpu.json
    python -m lab.gpu matrix --llama-server llama-server --size 4b --json matrix.json      every kind of model
    python -m lab.gpu drafts --folder /dev/shm                              draft models: always right, always wrong
    python -m lab.gpu report gpu.json                                       its section of docs/benchmarks.md

It starts and kills the servers itself. Each figure is printed and written as soon as it is there.
"""

import argparse
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from tempfile import gettempdir

from lab.bench.errors import BenchError
from lab.gpu import cold, drafts, exact, kill, offload, resumes, streams, swaps, workloads
from lab.gpu import matrix as matrices
from lab.gpu.cells import Extent
from lab.gpu.machine import facts, machine_facts
from lab.gpu.matrix_report import write_matrix_report
from lab.gpu.random_model import write_random_model
from lab.gpu.record import Record, read_record
from lab.gpu.report import write_report
from lab.gpu.rig import XLLAMACPP, Rig
from lab.gpu.shapes import KINDS, SIZES, shape
from leftoff.cli.flags import CommandLine
from leftoff.cli.main import run_command
from leftoff.cli.signals import ended_by_signals
from leftoff.setting import SettingError

_LONG = 32768
_SHORTEST = 512
_PAGE = Path("docs/benchmarks.md")
# What is measured with the same servers, by the names of its parts.
_GROUPS: tuple[tuple[tuple[str, ...], Callable[[Rig, Collection[str]], None]], ...] = (
    (streams.PARTS, streams.measure),
    (("cold",), lambda rig, _: cold.measure(rig)),
    (("ram",), lambda rig, _: resumes.measure_ram(rig)),
    (resumes.PARKED_PARTS, resumes.measure_parked),
    (("kill",), lambda rig, _: kill.measure(rig)),
    (("offload",), lambda rig, _: offload.measure(rig)),
    (("swaps",), lambda rig, _: swaps.measure(rig)),
    (("workloads",), lambda rig, _: workloads.measure(rig)),
    (("exact",), lambda rig, _: exact.measure(rig)),
)
PARTS = tuple(part for parts, _ in _GROUPS for part in parts)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code."""
    return run_command(_parser, sys.argv[1:] if argv is None else argv)


def _parser() -> CommandLine:
    parser = CommandLine(prog="python -m lab.gpu", description="Measures leftoff and llama-server on one GPU.")
    parser.add_argument("--model", metavar="FILE", help="GGUF file, such as one of `python -m lab.gpu model`")
    parser.add_argument("--second", metavar="FILE", help="another model, for what is measured with two: swaps")
    parser.add_argument("--only", default="", metavar="PARTS", help=f"some of {','.join(PARTS)}")
    _add_settings(parser)
    parser.set_defaults(run=_measure)
    commands = parser.add_subparsers(metavar="COMMAND")
    matrix = commands.add_parser("matrix", help="measure every kind of model, operation by operation")
    _add_settings(matrix)
    matrix.add_argument("--kinds", default="", metavar="KINDS", help=f"some of {','.join(KINDS)}")
    matrix.add_argument("--size", choices=SIZES, default="4b")
    matrix.add_argument("--models", metavar="DIR", help="where the models are put, such as /dev/shm (as --folder)")
    matrix.add_argument(
        "--long-kinds",
        default=",".join(matrices.LONG_KINDS),
        metavar="KINDS",
        help="measured a second time with --longest tokens and q8_0 KV, or '' (%(default)s)",
    )
    matrix.add_argument("--longest", type=int, default=matrices.LONG, metavar="N", help="(%(default)s)")
    matrix.add_argument(
        "--seconds-left", type=float, metavar="S", help="no kind begins later than this after the start"
    )
    matrix.add_argument("--rounds", type=int, default=Extent.num_rounds, metavar="N", help="of decode (%(default)s)")
    matrix.add_argument(
        "--rest",
        type=float,
        default=Extent.rest_s,
        metavar="S",
        help="seconds before the same prompt is asked again (%(default)s)",
    )
    matrix.set_defaults(run=_measure_matrix)
    model = commands.add_parser("model", help="write a random model")
    model.add_argument("out", metavar="OUT.gguf")
    model.add_argument("--size", choices=SIZES, default="8b")
    model.add_argument("--kind", choices=KINDS, default="hybrid")
    model.set_defaults(run=_write_model)
    drafting = commands.add_parser("drafts", help="measure draft models that are always right and always wrong")
    drafting.add_argument("--kind", choices=drafts.KINDS, default="dense")
    drafting.add_argument("--size", choices=SIZES, default="8b")
    drafting.add_argument("--folder", default=gettempdir(), metavar="DIR", help="where the models are put")
    drafting.add_argument("--rounds", type=int, default=5, metavar="N")
    drafting.set_defaults(run=lambda args: drafts.measure(Path(args.folder), args.kind, args.size, args.rounds))
    report = commands.add_parser("report", help="write the figures into a Markdown file")
    report.add_argument("record", metavar="OUT.json")
    report.add_argument("--markdown", default=str(_PAGE), metavar="FILE", help=f"(default: {_PAGE})")
    report.set_defaults(run=_write_report)
    return parser


def _add_settings(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--llama-server", metavar="PROGRAM", help=f"or {XLLAMACPP}: the one in that wheel, on the CPU")
    parser.add_argument("--long", type=int, default=_LONG, metavar="N", help=f"tokens of a long prompt ({_LONG})")
    parser.add_argument("--json", dest="json_file", metavar="OUT", help="write the figures; others in it are kept")
    parser.add_argument("--folder", default=gettempdir(), metavar="DIR", help="where the disk caches are put")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="of each server")
    parser.add_argument("--leftoff-flags", default="", metavar="FLAGS", help="more flags, in one text")
    parser.add_argument("--llama-server-flags", default="", metavar="FLAGS", help="more flags, in one text")


def _write_model(args: argparse.Namespace) -> int:
    began, path = time.perf_counter(), Path(args.out)
    write_random_model(path, shape(args.kind, args.size))
    print(f"{path}: {path.stat().st_size / 1e9:.2f} GB in {time.perf_counter() - began:.0f} s")
    return 0


def _write_report(args: argparse.Namespace) -> int:
    record = read_record(Path(args.record))
    write = write_matrix_report if record.model in SIZES else write_report
    write(record, Path(args.markdown))
    return 0


def _measure_matrix(args: argparse.Namespace) -> int:
    kinds, long_kinds = (
        _some(args.kinds, KINDS, "--kinds") or list(KINDS),
        _some(args.long_kinds, KINDS, "--long-kinds"),
    )
    _check(args)
    folder = Path(args.models or args.folder).absolute()
    rig = _rig(args, folder, _record(args, args.size, machine_facts(args.llama_server)))
    rig.record.say("\n".join(rig.record.facts))
    with ended_by_signals():
        extent = Extent(num_rounds=args.rounds, rest_s=args.rest)
        longest, seconds = args.longest, args.seconds_left
        return int(matrices.Matrix(rig, folder, args.size, kinds, long_kinds, longest, seconds, extent).measure() > 0)


def _measure(args: argparse.Namespace) -> int:
    wanted, model = set(_some(args.only, PARTS, "--only") or PARTS), _model(args)
    _check(args)
    rig = _rig(args, model, _record(args, model.name, facts(model, args.llama_server)))
    rig.record.say("\n".join(rig.record.facts))
    began, failures = time.perf_counter(), 0
    with ended_by_signals():
        for parts, measure in _GROUPS:
            if wanted.intersection(parts):
                failures += not _try(lambda: measure(rig, wanted), parts, rig.record)  # noqa: B023
                rig.record.say(f"  {time.perf_counter() - began:.0f} s so far")
    return int(failures > 0)


def _try(measure: Callable[[], None], parts: Sequence[str], record: Record) -> bool:
    """A part that fails does not take the others with it."""
    try:
        measure()
    except (BenchError, OSError) as error:
        record.say(f"  {', '.join(parts)} FAILED: {error}")
        return False
    return True


def _some(text: str, known: Collection[str], flag: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SettingError(f"{flag} {', '.join(unknown)}: there is no such; give some of {','.join(known)}")
    return names


def _model(args: argparse.Namespace) -> Path:
    if not args.model or not args.llama_server:
        raise SettingError("give --model FILE and --llama-server PROGRAM, or a command: matrix, model, report")
    model = Path(args.model).absolute()
    if not model.is_file():
        raise SettingError(f"--model {args.model}: there is no such file; `python -m lab.gpu model FILE` makes one")
    return model


def _check(args: argparse.Namespace) -> None:
    if not args.llama_server:
        raise SettingError("give --llama-server PROGRAM")
    if args.llama_server != XLLAMACPP and not shutil.which(args.llama_server):
        raise SettingError(f"--llama-server {args.llama_server}: no such program; give its path, or {XLLAMACPP}")
    if args.long < _SHORTEST:
        raise SettingError(f"--long {args.long}: must be at least {_SHORTEST}")


def _rig(args: argparse.Namespace, model: Path, record: Record) -> Rig:
    return Rig(
        model,
        args.llama_server,
        record,
        Path(args.folder),
        args.long,
        args.threads,
        leftoff_flags=tuple(shlex.split(args.leftoff_flags)),
        peer_flags=tuple(shlex.split(args.llama_server_flags)),
        second=Path(args.second).absolute() if vars(args).get("second") else None,
    )


def _record(args: argparse.Namespace, model: str, known: list[str]) -> Record:
    """A new one, with the figures that an earlier run of the same measures has left in the file."""
    path = Path(args.json_file) if args.json_file else None
    record = Record(_command(args, model), known, model, args.long, path)
    if path and path.exists():
        earlier = read_record(path)
        if (earlier.model, earlier.long) != (record.model, record.long):
            raise SettingError(f"--json {path} has figures of {earlier.model} at {earlier.long}: name another file")
        record.rows, record.commands = earlier.rows, earlier.commands
    return record


def _command(args: argparse.Namespace, model: str) -> str:
    """As anybody can type it: without the parts that were chosen, and without folders."""
    what = ["matrix", "--size", model] if model in SIZES else ["--model", model]
    words = ["python", "-m", "lab.gpu", *what, "--llama-server", Path(args.llama_server).name]
    words += ["--long", str(args.long)] if args.long != _LONG else []
    for flag in ("--leftoff-flags", "--llama-server-flags"):
        value = getattr(args, flag.removeprefix("--").replace("-", "_"))
        words += [flag, value] if value else []
    return shlex.join(words)


if __name__ == "__main__":
    sys.exit(main())
