"""llama-server's flags that are no settings here, so that a command line written for llama-server works.

Its sampling flags, and those about reasoning, set the defaults for requests. The others are listed in
`llama_flags.toml`: some are accepted, and named at start, the rest refused, with what to do instead.
"""

import argparse
import json
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from leftoff.cli.config_file import Values
from leftoff.cli.flags import CommandLine, reader
from leftoff.config import MIB
from leftoff.engine.binding.library import load_library
from leftoff.engine.devices import device_memory
from leftoff.errors import reason_of
from leftoff.sampling import PARAMETERS, Parameter
from leftoff.setting import SWITCH


class Takes(Enum):
    """The kind of value that follows a flag."""

    NOTHING = "switches"
    VALUE = "valued"
    PERHAPS = "perhaps"  # on, off or auto


@dataclass(frozen=True)
class Foreign:
    """Flags that are ignored or refused for one reason."""

    reason: str
    options: tuple[tuple[str, Takes], ...]
    refused: bool


def _read_foreign() -> Iterator[Foreign]:
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    for kind, entries in tables.items():
        for entry in entries:
            options = [(option, takes) for takes in Takes for option in entry.get(takes.value, "").split()]
            yield Foreign(entry["reason"], tuple(options), refused=kind == "refused")


FOREIGN = tuple(_read_foreign())

# llama-server's --load-mode as the settings mmap and mlock; None leaves them as they are.
_LOAD_MODES: dict[str, tuple[bool | None, bool | None]] = {
    "auto": (None, None),
    "none": (False, False),
    "mmap": (True, False),
    "mlock": (False, True),
    "mmap+mlock": (True, True),
    "dio": (False, False),
}
_ANY_SEED = (-1, 2**32 - 1)  # llama-server's two ways to ask for another seed each time
_KWARGS = "chat_template_kwargs"
_AUTO = ("auto", "-1")
_WORDS = ("on", "off", "auto", "true", "false", "enabled", "disabled")


def add_foreign(parser: CommandLine) -> None:
    """Adds llama-server's flags that have no effect here, hidden from the help."""
    parser.set_defaults(ignored=[])
    for foreign in FOREIGN:
        for option, takes in foreign.options:
            _add(parser, foreign, option, takes)
    hidden = argparse.SUPPRESS
    parser.add_argument("--api-key-file", dest="api_key", action="append", type=_keys_in, help=hidden)
    _add_reasoning(parser)
    parser.add_argument("-lm", "--load-mode", action=_LoadMode, choices=_LOAD_MODES, help=hidden)
    parser.add_argument("--control-vector-layer-range", action=_LayerRange, nargs=2, help=hidden)
    parser.add_argument("--list-devices", action=_ListDevices, nargs=0, default=argparse.SUPPRESS, help=hidden)


def add_sampling(parser: CommandLine) -> None:
    """Adds a flag for each sampling parameter that has one."""
    group = parser.add_argument_group(
        "sampling", "Defaults for requests that do not say. llama-server's flags for its other samplers work too."
    )
    for parameter in PARAMETERS:
        if not parameter.flags:
            continue
        default = "another each time" if parameter.name == "seed" else "what the model recommends"
        group.add_argument(
            *parameter.flags,
            dest=_dest(parameter),
            type=reader(parameter.value),
            metavar="N" if parameter.kind is int else "X",
            help=f"(default: {default})" if parameter.is_in_help else argparse.SUPPRESS,
        )


def sampling_of(args: argparse.Namespace, in_file: Values | None = None) -> Values:
    """The fields of `Sampling` that were given as flags, or in leftoff.toml."""
    values = {parameter.name: getattr(args, _dest(parameter), None) for parameter in PARAMETERS}
    given = (in_file or {}) | {name: value for name, value in values.items() if value is not None}
    if given.get("seed") in _ANY_SEED:
        given["seed"] = None
    return given


def ignored_lines(ignored: Sequence[tuple[str, str]]) -> list[str]:
    """One line for each reason: `ignored: --samplers, --reasoning: clients send it with each request`."""
    by_reason: dict[str, dict[str, None]] = {}
    for option, reason in ignored:
        by_reason.setdefault(reason, {})[option] = None
    return [f"ignored: {', '.join(options)}: {reason}" for reason, options in by_reason.items()]


class _Note(argparse.Action):
    """Remembers that a flag was given, or refuses it."""

    foreign: Foreign

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:  # noqa: ANN401, ARG002
        if self.foreign.refused:
            parser.error(f"{option_string}: {self.foreign.reason}")
        namespace.ignored = [*namespace.ignored, (option_string, self.foreign.reason)]


class _LoadMode(argparse.Action):
    """Sets --mmap and --mlock."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:  # noqa: ANN401, ARG002
        namespace.mmap, namespace.mlock = _LOAD_MODES[values]


class _LayerRange(argparse.Action):
    """Sets --control-vector-layers, from two words."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:  # noqa: ANN401, ARG002
        namespace.control_vector_layers = ",".join(values)


class _ListDevices(argparse.Action):
    """Prints the devices that --device can name, as llama-server does, and exits."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:  # noqa: ANN401, ARG002
        print("Available devices:")
        for device in device_memory(load_library()):
            if device.is_gpu:
                total, free = device.total_bytes // MIB, device.free_bytes // MIB
                print(f"  {device.name}: {device.description} ({total} MiB, {free} MiB free)")
        parser.exit()


def _add(parser: CommandLine, foreign: Foreign, option: str, takes: Takes) -> None:
    nargs = 0 if takes is Takes.NOTHING else None
    action = parser.add_argument(option, dest=option, action=_Note, nargs=nargs, help=argparse.SUPPRESS)
    assert isinstance(action, _Note)
    action.default = argparse.SUPPRESS
    action.foreign = foreign
    if takes is Takes.PERHAPS:
        parser.may_stand_alone([option], "on", _WORDS)


def _add_reasoning(parser: CommandLine) -> None:
    """Adds the flags that are variables of chat templates by other names."""
    readers = {("--reasoning", "-rea"): _thinking, ("--reasoning-budget",): _budget, ("--reasoning-effort",): _effort}
    for options, read in readers.items():
        parser.add_argument(*options, dest=_KWARGS, action="append", type=read, help=argparse.SUPPRESS)
    for option, keeps in (("--reasoning-preserve", True), ("--no-reasoning-preserve", False)):
        values = _template_values(preserve_thinking=keeps)
        parser.add_argument(option, dest=_KWARGS, action="append_const", const=values, help=argparse.SUPPRESS)
    parser.add_argument("--reasoning-format", type=_split_off, help=argparse.SUPPRESS)


def _template_values(**values: Any) -> tuple[str, ...]:  # noqa: ANN401
    return (json.dumps(values),)


def _thinking(text: str) -> tuple[str, ...]:
    if text in _AUTO:
        return _template_values()
    if text not in SWITCH:
        raise argparse.ArgumentTypeError(f"{text!r} is neither on nor off, nor auto")
    return _template_values(enable_thinking=SWITCH[text])


def _budget(text: str) -> tuple[str, ...]:
    if text not in ("0", "-1"):
        problem = f"{text!r}: reasoning cannot be cut short here"
        raise argparse.ArgumentTypeError(f"{problem}: give 0 for none, -1 for any, or --reasoning-effort low")
    return _template_values(**({"enable_thinking": False} if text == "0" else {}))


def _effort(text: str) -> tuple[str, ...]:
    if text == "default":
        return _template_values()
    return _template_values(reasoning_effort=text, enable_thinking=text != "none")


def _split_off(text: str) -> str:
    if text == "none":
        raise argparse.ArgumentTypeError("'none': send it with each request, as reasoning_format")
    return text


def _dest(parameter: Parameter) -> str:
    return f"sampling_{parameter.name}"


def _keys_in(text: str) -> tuple[str, ...]:
    try:
        lines = Path(text).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise argparse.ArgumentTypeError(f"{text} cannot be read ({reason_of(error)})") from None
    keys = tuple(line for line in map(str.strip, lines) if line and not line.startswith("#"))
    if not keys:
        raise argparse.ArgumentTypeError(f"{text} holds no key: write one on each line")
    return keys
