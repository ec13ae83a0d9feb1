"""llama-server's flags for how tokens are chosen where a request does not say: they hold here too."""

import argparse
from collections.abc import Callable
from typing import Any

from leftoff.cli.flags import CommandLine
from leftoff.types import Sampling

# The field of `Sampling`, what it is read as, and llama-server's names for it.
_FLAGS: tuple[tuple[str, type[int] | type[float], str], ...] = (
    ("temperature", float, "--temp --temperature"),
    ("dynatemp_range", float, "--dynatemp-range"),
    ("dynatemp_exponent", float, "--dynatemp-exp"),
    ("top_k", int, "--top-k"),
    ("top_p", float, "--top-p"),
    ("min_p", float, "--min-p"),
    ("typical_p", float, "--typical --typical-p"),
    ("top_n_sigma", float, "--top-n-sigma --top-nsigma"),
    ("xtc_probability", float, "--xtc-probability"),
    ("xtc_threshold", float, "--xtc-threshold"),
    ("repeat_penalty", float, "--repeat-penalty"),
    ("repeat_last_n", int, "--repeat-last-n"),
    ("presence_penalty", float, "--presence-penalty"),
    ("frequency_penalty", float, "--frequency-penalty"),
    ("dry_multiplier", float, "--dry-multiplier"),
    ("dry_base", float, "--dry-base"),
    ("dry_allowed_length", int, "--dry-allowed-length"),
    ("dry_penalty_last_n", int, "--dry-penalty-last-n"),
    ("mirostat", int, "--mirostat"),
    ("mirostat_eta", float, "--mirostat-lr"),
    ("mirostat_tau", float, "--mirostat-ent"),
    ("seed", int, "--seed -s"),
)
_ANY_SEED = (-1, 2**32 - 1)  # llama-server's ways to say that each reply has another


def add_sampling(parser: CommandLine) -> None:
    group = parser.add_argument_group(
        "sampling", "Where a request does not say. Also the other samplers of llama-server, by its flags."
    )
    for field, kind, names in _FLAGS:
        shown = field in ("temperature", "top_k", "top_p", "min_p", "repeat_penalty", "seed")
        group.add_argument(
            *names.split(),
            dest=_dest(field),
            type=_reader(field, kind),
            metavar="N" if kind is int else "X",
            help=f"(default: {'another each time' if field == 'seed' else 'what the model recommends'})"
            if shown
            else argparse.SUPPRESS,
        )


def sampling_of(args: argparse.Namespace) -> dict[str, Any]:
    """The fields of `Sampling` that were given."""
    values = {field: getattr(args, _dest(field)) for field, _, _ in _FLAGS}
    given = {field: value for field, value in values.items() if value is not None}
    if given.get("seed") in _ANY_SEED:
        given["seed"] = None
    return given


def _dest(field: str) -> str:
    return f"sampling_{field}"


def _reader(field: str, kind: type[int] | type[float]) -> Callable[[str], Any]:
    def read(text: str) -> Any:  # noqa: ANN401
        try:
            value: Any = kind(text)
        except ValueError:
            kind_of = "whole number" if kind is int else "number"
            raise argparse.ArgumentTypeError(f"{text!r} is not a {kind_of}") from None
        try:
            Sampling(**{field: value})
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return value

    return read
