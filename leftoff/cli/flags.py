"""The command-line parser, and the settings as its flags, as environment variables and as docs/settings.md."""

import argparse
import math
import os
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from leftoff.cli.config_file import ConfigFile, Values, read_config
from leftoff.config import Settings, definitions
from leftoff.errors import meant
from leftoff.sampling import DEFAULT_SAMPLING, PARAMETERS, Parameter
from leftoff.setting import SWITCH, Definition, SettingError

_PAGE = """\
# Settings

`leftoff serve` takes every setting as a flag, from the environment, or from [leftoff.toml](models.md), where it has the
name of the flag without its dashes. A flag overrides the environment, which overrides the file, which overrides the
default. A flag for a list may be given several times: each value is added to the default, and an empty value empties
the list. In an environment variable, `,` separates names, keys, origins, hosts and overrides, and a line break
separates regular expressions. All models of a server share the settings marked with *; in the others they may differ.

`--open` is a flag alone: it opens the page in the browser once the server listens. `--help` describes what is most
used, `--help-all` everything.

This page is written by `python -m leftoff.cli.flags`; the definitions are in `leftoff/config.py` and
`leftoff/sampling.py`.
"""
_TABLE = """
## {title}

| flag | also | environment | default | meaning |
| --- | --- | --- | --- | --- |
"""
_SAMPLING = """
## Sampling

Defaults for requests that do not say. They are flags, and keys of leftoff.toml. Without one, a value that the model
file recommends is taken, else the default.

| flag | also | default | values |
| --- | --- | --- | --- |
"""

# The settings by what they are for, those first that are most used. `--help` describes only the first group.
MOST_USED = "Most used"
GROUPS = {
    MOST_USED: "model ctx port host api_key alias slots ram disk gpu_layers kv_type config",
    "Models": "models_dir models_max pinned sleep_idle_seconds chat_template_file pooling lora lora_init_without_apply "
    "control_vector control_vector_layers",
    "Cache": "disk_daily cache_dir parked prewarm read_ahead remember_replies",
    "Prompts and replies": "max_tokens chat_template_kwargs overflow drop_header move pin draft model_draft draft_max "
    "deterministic",
    "Pictures": "mmproj image_min_tokens image_max_tokens max_images image_megapixels fetch_images",
    "Devices and memory": "fit fit_target fit_ctx device split_mode tensor_split main_gpu n_cpu_moe cpu_moe "
    "override_tensor mmap mlock flash_attn cache_type_k cache_type_v threads threads_batch batch ubatch",
    "Access and limits": "cors allowed_host queue max_body page reports log_level log_format otel supervise",
    "Fleet": "store index fleet_key store_budget store_days advertise",
}

# Settings that say where weights and the KV cache go, for commands that take only some settings.
DEVICE_SETTINGS = (
    *("gpu_layers", "split_mode", "tensor_split", "main_gpu", "device", "n_cpu_moe", "cpu_moe", "override_tensor"),
    *("flash_attn", "kv_type", "cache_type_k", "cache_type_v", "mmap", "mlock", "fit", "fit_target", "fit_ctx"),
)

_LETTERS = re.compile(r"-[A-Za-z][A-Za-z-]")
_MANY = 1e6  # as a limit, it is none
_WIDTH = 79  # of the help, as far as it is not argparse's


class CommandLine(argparse.ArgumentParser):
    """A parser whose errors are one line, and whose flags with an optional value do not take a positional for it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **(kwargs | {"allow_abbrev": False}))
        self.bare: dict[str, tuple[str, Collection[str]]] = {}
        self.folded: list[str] = []  # titles of the groups of which `--help` has only the names
        self.behind = ""  # the argument that takes all words behind --, whatever they are
        self._has_commands = False

    def fold(self, titles: Sequence[str]) -> None:
        """Shortens `--help`: of the groups with these titles it has only the names, and `--help-all` all."""
        self.folded = [*titles]
        self.add_argument(
            "--help-all", action=_HelpAll, nargs=0, default=argparse.SUPPRESS, help="describe all options"
        )

    def format_help(self) -> str:
        if not self.folded:
            return super().format_help()
        groups, epilog = self._action_groups, self.epilog
        folded = [group for group in groups if group.title in self.folded]
        self._action_groups, self.epilog = [group for group in groups if group not in folded], None
        shown = super().format_help().rstrip()
        self._action_groups, self.epilog = groups, epilog
        width = max(len(str(group.title)) for group in folded)
        lines = [f"  {str(group.title).ljust(width)}  {_names_of(group, width + 4)}" for group in folded]
        more = f"more options, which {self.prog} --help-all describes:"
        return "\n".join([shown, "", more, *lines, "", *textwrap.wrap(epilog or "", _WIDTH), ""])

    def add_subparsers(self, **kwargs: Any) -> Any:  # noqa: ANN401
        self._has_commands = True
        return super().add_subparsers(**kwargs)

    def may_stand_alone(self, options: Sequence[str], meaning: str, words: Collection[str]) -> None:
        """Declares options whose value may be missing: unless a number or one of `words` follows, it is `meaning`."""
        self.bare |= dict.fromkeys(options, (meaning, words))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401
        words = sys.argv[1:] if args is None else args
        behind: list[str] = []
        if self.behind and "--" in words:
            words, behind = words[: words.index("--")], words[words.index("--") + 1 :]
        unknown = [] if self._has_commands else self._glued(words)
        if not unknown:
            namespace, unknown = super().parse_known_args(self._settled(words), namespace)
        many = next((action.dest for action in self._get_positional_actions() if action.nargs == "*"), None)
        if many and not any(word.startswith("-") for word in unknown):  # argparse takes none behind a second flag
            setattr(namespace, many, [*getattr(namespace, many), *unknown])
            unknown = []
        if self.behind:
            setattr(namespace, self.behind, behind)
        if unknown:  # reported here rather than by the parent parser, whose --help is another
            flag = next((word.partition("=")[0] for word in unknown if word.startswith("--")), "")
            self.error(f"unrecognized arguments: {' '.join(unknown)}{meant(flag, self._shown_options())}")
        return namespace, []

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # noqa: ANN401
        if action.choices is not None and value not in action.choices:
            known = [*map(str, action.choices)]
            hint = meant(str(value), known) or f": must be one of {', '.join(known)}"
            raise argparse.ArgumentError(action, f"{value!r} is unknown{hint}")

    def error(self, message: str) -> Any:  # noqa: ANN401
        self.exit(2, f"{self.prog}: {message} ({self.prog} --help lists what there is)\n")

    def _glued(self, words: Sequence[str]) -> list[str]:
        """Words that argparse would split into a short option and its value: `-ag` is unknown, not `-a g`."""
        options = words[: words.index("--")] if "--" in words else words
        known = self._option_string_actions
        return [word for word in options if _LETTERS.match(word) and word.partition("=")[0] not in known]

    def _shown_options(self) -> Iterable[str]:
        known = self._option_string_actions.items()
        return (option for option, action in known if action.help != argparse.SUPPRESS)

    def _settled(self, args: Sequence[str]) -> list[str]:
        return [self._with_meaning(text, following) for text, following in zip(args, [*args[1:], ""], strict=False)]

    def _with_meaning(self, text: str, following: str) -> str:
        meaning, words = self.bare.get(text, ("", ()))
        has_value = not meaning or following.lower() in words or following.removeprefix("-").isdecimal()
        return text if has_value else f"{text}={meaning}"


class _HelpAll(argparse.Action):
    """Prints the help with all groups, and exits."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:  # noqa: ANN401, ARG002
        parser.folded = []
        parser.print_help()
        parser.exit()


def _names_of(group: Any, indent: int) -> str:  # noqa: ANN401
    actions = (action for action in group._group_actions if action.help != argparse.SUPPRESS)
    names = " ".join(action.option_strings[0] for action in actions)
    return f"\n{' ' * indent}".join(textwrap.wrap(names, _WIDTH - indent, break_on_hyphens=False))


def add_settings(parser: CommandLine, names: Collection[str] = (), texts: Mapping[str, str] | None = None) -> None:
    """Adds a flag for those settings that are named, else, in groups, for all; `texts` has other help texts.

    A flag not given is None.
    """
    groups = {title: parser.add_argument_group(title.lower()) for title in GROUPS if not names}
    for title, definition in grouped():
        if not names or definition.name in (*names, "config"):
            text = (texts or {}).get(definition.name, definition.meaning)
            _add(parser, groups.get(title, parser), definition, text)
    if groups:
        parser.fold([*(title.lower() for title in GROUPS if title != MOST_USED), "sampling"])


def grouped() -> list[tuple[str, Definition]]:
    """All settings in the order of their groups, each with the title of its group."""
    titles = {name: title for title, names in GROUPS.items() for name in names.split()}
    order = {name: place for place, name in enumerate(titles)}
    found = sorted(definitions(), key=lambda definition: order.get(definition.name, len(order)))
    return [(titles.get(definition.name, [*GROUPS][-1]), definition) for definition in found]


def add_json(parser: CommandLine) -> None:
    """Adds the option of commands that can also answer programs."""
    parser.add_argument("--json", action="store_true", help="print one JSON object for programs, and nothing else")


def add_action(actions: "argparse._SubParsersAction[CommandLine]", name: str, text: str) -> CommandLine:
    """Adds a command of a command, which does what `text` says."""
    return actions.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.")


def positive(text: str) -> int:
    """The type of an argument that is a positive whole number."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def reader(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """The type of an argument that `read` parses. What that says of a wrong value is shown; argparse would not."""

    def parsed(text: str) -> Any:  # noqa: ANN401
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parsed


def settings_from(args: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings from the flags, the environment, the file and the defaults, in this order."""
    given = given_values(args, environment)
    return Settings(**config_of(given).values | given)


def given_values(args: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """The settings that flags and environment variables give, by name; a flag goes before a variable."""
    values: dict[str, Any] = {}
    for definition in definitions():
        given = getattr(args, definition.name, None)
        if given is None:
            given = _from_environment(definition, environment)
        elif definition.is_list:
            given = definition.joined(given)
        if given is not None:
            values[definition.name] = given
    return values


def config_of(given: Values) -> ConfigFile:
    """The file with settings that is named, or the one that is found."""
    return read_config(given.get("config", ""))


def settings_page() -> str:
    """The text of docs/settings.md."""
    tables = (
        _TABLE.format(title=title) + "".join(_row(definition) for of, definition in grouped() if of == title)
        for title in GROUPS
    )
    sampling = _SAMPLING + "".join(_sampling_row(parameter) for parameter in PARAMETERS if parameter.flags)
    return f"{_PAGE}{''.join(tables)}{sampling}"


def _add(parser: CommandLine, group: Any, definition: Definition, text: str) -> None:  # noqa: ANN401
    options = (definition.option, *definition.aliases)
    choices = f": one of {', '.join(definition.choices)}" if definition.choices else ""
    has_default = definition.shown_default and "default:" not in text
    shown = f" (default: {definition.shown_default})" if has_default else ""
    if definition.is_switch:
        off = f"--no-{definition.option[2:]}"
        group.add_argument(off, dest=definition.name, action="store_const", const=False, help=argparse.SUPPRESS)
    group.add_argument(
        *options,
        dest=definition.name,
        type=reader(definition.value),
        action="append" if definition.is_list else "store",
        metavar="on|off" if definition.is_switch else _metavar(definition),
        help=f"{text}{choices}{shown}".replace("%", "%%"),
    )
    if definition.is_switch:
        parser.may_stand_alone(options, "on", SWITCH)
    elif definition.bare:
        parser.may_stand_alone(options, definition.bare, definition.words)


def _from_environment(definition: Definition, environment: Mapping[str, str]) -> Any:  # noqa: ANN401
    text = environment.get(definition.environment)
    if text is None or (text == "" and not definition.is_list):
        return None
    try:
        value = definition.value(text)
    except SettingError as error:
        raise SettingError(f"{definition.environment}: {error}") from None
    return definition.joined([value]) if definition.is_list else value


def _metavar(definition: Definition) -> str:
    return definition.metavar or ("N" if isinstance(definition.default, int) else definition.name.upper())


def _row(definition: Definition) -> str:
    choices = f": one of {', '.join(map(_code, definition.choices))}" if definition.choices else ""
    cells = (
        _code(definition.option) + " *" * definition.is_shared,
        " ".join(map(_code, definition.aliases)),
        _code(definition.environment),
        _code(definition.shown_default) if definition.shown_default else "",
        definition.meaning + choices,
    )
    return _cells(cells)


def _sampling_row(parameter: Parameter) -> str:
    first, *others = parameter.flags
    low, high = parameter.limits or (-math.inf, math.inf)
    limits = f"{low:g} to {high:g}" if high < _MANY else f"from {low:g}" if low > -_MANY else "any"
    default = getattr(DEFAULT_SAMPLING, parameter.name)
    shown = "another each time" if default is None else str(default)
    return _cells((_code(first), " ".join(map(_code, others)), shown, limits))


def _cells(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _code(text: str) -> str:
    return f"`{text}`"


if __name__ == "__main__":
    sys.stdout.write(settings_page())
