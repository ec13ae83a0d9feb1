"""The command-line parser, and the settings as its flags, as environment variables and as docs/settings.md."""

import argparse
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from leftoff.cli.config_file import ConfigFile, Values, read_config
from leftoff.config import Settings, definitions
from leftoff.setting import SWITCH, Definition, SettingError

_PAGE = """\
# Settings

`leftoff serve` takes every setting as a flag, from the environment, or from [leftoff.toml](models.md), where it has the
name of the flag without its dashes. A flag overrides the environment, which overrides the file, which overrides the
default. A flag for a list may be given several times: each value is added to the default, and an empty value empties
the list. In an environment variable, `,` separates names, keys, origins, hosts and overrides, and a line break
separates regular expressions. All models of a server share the settings marked with *; in the others they may differ.

This page is written by `python -m leftoff.cli.flags`; the definitions are in `leftoff/config.py`.

| flag | also | environment | default | meaning |
| --- | --- | --- | --- | --- |
"""


_LETTERS = re.compile(r"-[A-Za-z][A-Za-z-]")


class CommandLine(argparse.ArgumentParser):
    """A parser whose errors are one line, and whose flags with an optional value do not take a positional for it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        super().__init__(*args, **(kwargs | {"allow_abbrev": False}))
        self.bare: dict[str, tuple[str, Collection[str]]] = {}
        self._has_commands = False

    def add_subparsers(self, **kwargs: Any) -> Any:  # noqa: ANN401
        self._has_commands = True
        return super().add_subparsers(**kwargs)

    def may_stand_alone(self, options: Sequence[str], meaning: str, words: Collection[str]) -> None:
        """Declares options whose value may be missing: unless a number or one of `words` follows, it is `meaning`."""
        self.bare |= dict.fromkeys(options, (meaning, words))

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:  # noqa: ANN401
        words = sys.argv[1:] if args is None else args
        unknown = [] if self._has_commands else self._glued(words)
        if not unknown:
            namespace, unknown = super().parse_known_args(self._settled(words), namespace)
        many = next((action.dest for action in self._get_positional_actions() if action.nargs == "*"), None)
        if many and not any(word.startswith("-") for word in unknown):  # argparse takes none behind a second flag
            setattr(namespace, many, [*getattr(namespace, many), *unknown])
            unknown = []
        if unknown:  # reported here rather than by the parent parser, whose --help is another
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return namespace, []

    def error(self, message: str) -> Any:  # noqa: ANN401
        self.exit(2, f"{self.prog}: {message} ({self.prog} --help lists what there is)\n")

    def _glued(self, words: Sequence[str]) -> list[str]:
        """Words that argparse would split into a short option and its value: `-ag` is unknown, not `-a g`."""
        options = words[: words.index("--")] if "--" in words else words
        return [word for word in options if _LETTERS.match(word) and word.partition("=")[0] not in self._options]

    @property
    def _options(self) -> Collection[str]:
        return self._option_string_actions.keys()

    def _settled(self, args: Sequence[str]) -> list[str]:
        return [self._with_meaning(text, following) for text, following in zip(args, [*args[1:], ""], strict=False)]

    def _with_meaning(self, text: str, following: str) -> str:
        meaning, words = self.bare.get(text, ("", ()))
        has_value = not meaning or following.lower() in words or following.removeprefix("-").isdecimal()
        return text if has_value else f"{text}={meaning}"


def add_settings(parser: CommandLine, names: Collection[str] = (), texts: Mapping[str, str] | None = None) -> None:
    """Adds a flag for every setting, or for those named; `texts` has other help texts. A flag not given is None."""
    for definition in definitions():
        if not names or definition.name in (*names, "config"):
            _add(parser, definition, (texts or {}).get(definition.name, definition.flag.help))


def positive(text: str) -> int:
    """The type of an argument that is a positive whole number."""
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def settings_from(args: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings from the flags, the environment, the file and the defaults, in this order."""
    given = given_values(args, environment)
    return Settings(**config_of(given).values | given)


def given_values(args: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """What flags and the environment say."""
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
    return _PAGE + "".join(map(_row, definitions()))


def _add(parser: CommandLine, definition: Definition, text: str) -> None:
    flag, options = definition.flag, (definition.option, *definition.flag.names)
    choices = f": one of {', '.join(flag.choices)}" if flag.choices else ""
    has_default = definition.shown_default and "default:" not in text
    shown = f" (default: {definition.shown_default})" if has_default else ""
    if definition.is_switch:
        off = f"--no-{definition.option[2:]}"
        parser.add_argument(off, dest=definition.name, action="store_const", const=False, help=argparse.SUPPRESS)
    parser.add_argument(
        *options,
        dest=definition.name,
        type=_reader(definition),
        action="append" if definition.is_list else "store",
        metavar="on|off" if definition.is_switch else _metavar(definition),
        help=f"{text}{choices}{shown}".replace("%", "%%"),
    )
    if definition.is_switch:
        parser.may_stand_alone(options, "on", SWITCH)
    elif flag.bare:
        parser.may_stand_alone(options, flag.bare, flag.words)


def _reader(definition: Definition) -> Any:  # noqa: ANN401
    def read(text: str) -> Any:  # noqa: ANN401
        try:
            return definition.value(text)
        except SettingError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


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
    return definition.flag.metavar or ("N" if isinstance(definition.default, int) else definition.name.upper())


def _row(definition: Definition) -> str:
    flag = definition.flag
    choices = f": one of {', '.join(map(_code, flag.choices))}" if flag.choices else ""
    cells = (
        _code(definition.option) + " *" * flag.is_shared,
        " ".join(map(_code, flag.names)),
        _code(definition.environment),
        _code(definition.shown_default) if definition.shown_default else "",
        flag.help + choices,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _code(text: str) -> str:
    return f"`{text}`"


if __name__ == "__main__":
    sys.stdout.write(settings_page())
