"""A setting: its flag, its environment variable, and how its text is parsed and checked.

It knows no setting by name: all of them are in `config.py`.
"""

import dataclasses
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from leftoff.errors import LeftoffError

_ENVIRONMENT = "LEFTOFF_"
_ON, _OFF = ("on", "true", "yes", "1", "enabled"), ("off", "false", "no", "0", "disabled")
SWITCH = dict.fromkeys(_ON, True) | dict.fromkeys(_OFF, False)
RESERVED = ("messages", "tools", "add_generation_prompt")  # for chat templates, which have them from requests
ANY = "*"  # in lists of hosts and of origins
MAX_SCALE = 1000  # of an adapter, either way
_SCALED_FILE = re.compile(r"(?:(?P<name>[\w.-]+)=)?(?P<path>.+?)(?::(?P<scale>[+-]?\d*\.?\d+))?")
_ORIGIN = re.compile(r"null|[a-z][a-z\d+.-]*://[^/\s]+/?", re.IGNORECASE)  # browsers have others than http as well
_HOST = re.compile(r"(?:\[([0-9a-f:.]+(?:%[\w.%-]+)?)\]|([\w.-]+))(?::\d{0,5})?", re.ASCII | re.IGNORECASE)


class SettingError(LeftoffError, ValueError):
    """An invalid value. The message names the setting, the value and what to give instead."""


def setting(default: Any, text: str, *aliases: str, **more: Any) -> Any:  # noqa: ANN401
    """A field of `Settings`, which becomes a `Definition`: its name gives its first flag, `aliases` are others."""
    return dataclasses.field(default=default, metadata={"help": text, "aliases": aliases, **more})


def shared(default: Any, text: str, *aliases: str, **more: Any) -> Any:  # noqa: ANN401
    """A setting in which the models of a server cannot differ."""
    return setting(default, text, *aliases, is_shared=True, **more)


def template_setting(text: str) -> Any:  # noqa: ANN401
    """A setting for variables of chat templates: a list of JSON objects, which in a file may be tables."""
    return setting((), text, metavar="JSON", separator="\0", check=template_values_problem)


@dataclass(frozen=True)
class Definition:
    """One setting: its names on the command line and in the environment, and how its text is parsed and checked."""

    name: str
    default: Any
    help: str
    aliases: tuple[str, ...] = ()
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    limits: tuple[int, int] | None = None
    words: Mapping[str, Any] = dataclasses.field(default_factory=dict)  # words that stand for a number or a choice
    bare: str = ""  # the value of the flag when nothing follows it
    separator: str = "\n"  # between the values of a list in one text
    check: Callable[[str], str | None] | None = None  # returns what is wrong with a text, or a value of a list
    may_be_empty: bool = True
    is_shared: bool = False  # by all models of a server

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def environment(self) -> str:
        return _ENVIRONMENT + self.name.upper()

    @property
    def is_list(self) -> bool:
        return isinstance(self.default, tuple)

    @property
    def meaning(self) -> str:
        return f"{self.help}; may be given several times" if self.is_list else self.help

    @property
    def takes_tables(self) -> bool:
        return self.metavar == "JSON"

    @property
    def is_switch(self) -> bool:
        return isinstance(self.default, bool)

    @property
    def shown_default(self) -> str:
        if self.is_switch:
            return "on" if self.default else "off"
        if isinstance(self.default, int) and self.default < 0:  # it stands for a word
            return next((word for word, number in self.words.items() if number == self.default), str(self.default))
        return " ".join(self.default) if self.is_list else str(self.default)

    def value(self, text: str) -> Any:  # noqa: ANN401
        """Parses a text. For a list it gives the values to add; an empty text gives none, which empties the list."""
        value: Any = text
        if self.is_list:
            value = tuple(filter(None, map(str.strip, text.split(self.separator))))
            if not value and not self.may_be_empty:  # a variable that was not set must not open a server
                raise SettingError(f"{text!r} holds no value: give one, or leave it out")
        elif self.is_switch:
            value = self._switch(text)
        elif isinstance(self.default, int):
            value = self._number(text)
        else:
            value = self.words.get(text.strip().lower(), text)
        problem = self.problem(value)
        if problem:
            raise SettingError(problem)
        return value

    def of_toml(self, value: Any) -> Any:  # noqa: ANN401
        """The value in a TOML file. A list is what giving its flag several times is."""
        if not self.is_list:
            return self.value(self._text(value))
        items = value if isinstance(value, list) else [value]
        return self.joined([self.value(self._text(item)) for item in items or [""]])

    def _text(self, value: Any) -> str:  # noqa: ANN401
        """A value of TOML as a flag has it: a number or a switch may also be a word, but a text is no number."""
        if self.takes_tables and not isinstance(value, str):
            return json.dumps(value, default=str)
        text = str(value).lower() if isinstance(value, bool) else str(value)
        if isinstance(self.default, str | tuple) and not isinstance(value, str) and text not in self.words:
            raise SettingError(f'{text} is no text: write "{text}"')
        return text

    def joined(self, parts: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
        """Adds the values to the default list, in order; an empty part empties the list."""
        values: tuple[str, ...] = self.default
        for part in parts:
            values = (*values, *part) if part else ()
        return values

    def problem(self, value: Any) -> str | None:  # noqa: ANN401
        """Says what is wrong with a value and how to correct it; None if it is valid."""
        if self.choices and value not in (self.default, *self.choices):
            return f"{value!r} is unknown: must be one of {', '.join(self.choices)}"
        if self.limits and value != self.default and not self.limits[0] <= value <= self.limits[1]:
            words = "".join(f", or {word}" for word in self.words)
            return f"{value} must be between {self.limits[0]} and {self.limits[1]}{words}"
        texts = value if self.is_list else filter(None, [value])
        return next(filter(None, map(self.check, texts)), None) if self.check else None

    def _switch(self, text: str) -> bool:
        if text.strip().lower() not in SWITCH:
            raise SettingError(f"{text!r} is neither on nor off")
        return SWITCH[text.strip().lower()]

    def _number(self, text: str) -> int:
        word = self.words.get(text.strip().lower())
        if word is not None:
            return int(word)
        try:
            return int(text)
        except ValueError:
            named = [f"or {name!r}" for name in self.words if name.isalpha()]
            expected = " ".join([*([f"such as {self.default}"] if self.default >= 0 or not named else []), *named])
            raise SettingError(f"{text!r} is not a whole number, {expected}") from None


def host_name(text: str) -> str | None:
    """The lower-case name or address in `name`, `name:port` or `[address]:port`; None for any other text."""
    match = _HOST.fullmatch(text.strip())
    return (match[1] or match[2]).lower().removesuffix(".") or None if match else None


def is_loopback(host: str) -> bool:
    """Whether a name or an address, or that of a URL, means the machine itself: another one cannot reach it."""
    name = urlsplit(host).hostname if "://" in host else host
    try:
        return ip_address(name or "").is_loopback
    except ValueError:
        return name in ("localhost", None)  # a URL without a host is one of a socket in a folder


def host_problem(text: str) -> str | None:
    """Says what is wrong with a host name or address; None if nothing is."""
    if text == ANY or host_name(text):
        return None
    return f"{text!r} is not a host: give a name or an address, such as chat.example or [fd00::1], or * for all"


def origin_problem(text: str) -> str | None:
    """Says what is wrong with the origin of web pages; None if nothing is."""
    if text == ANY or _ORIGIN.fullmatch(text):
        return None
    return f"{text!r} is not an origin: give one such as https://chat.example, or * for all"


def regex_problem(pattern: str) -> str | None:
    """Says what is wrong with a regular expression; None if nothing is."""
    try:
        re.compile(pattern)
    except re.error as error:
        return f"{pattern!r} is not a regular expression ({error}): put a \\ before characters meant as they are"
    return None


def numbers(text: str) -> tuple[float, ...]:
    """The numbers in `3,1` or `3/1`, as llama-server separates them."""
    return tuple(map(float, filter(None, re.split("[,/]+", text))))


def numbers_problem(text: str) -> str | None:
    """Says what is wrong with a list of numbers; None if nothing is."""
    try:
        found = numbers(text)
    except ValueError:
        found = ()
    is_right = found and all(number >= 0 and math.isfinite(number) for number in found)
    return None if is_right else f"{text!r} is no list of numbers: give one for each device, such as 3,1"


def override_problem(text: str) -> str | None:
    """Says what is wrong with a pair of a pattern and a buffer type; None if nothing is."""
    pattern, equals, buffer_type = text.partition("=")
    if not equals or not pattern or not buffer_type:
        return f"{text!r} names no buffer type: give PATTERN=TYPE, such as ffn_.*_exps=CPU"
    return regex_problem(pattern)


@dataclass(frozen=True)
class ScaledFile:
    """A file with a scale, and perhaps a name, as in `NAME=FILE:SCALE`."""

    path: str
    scale: float = 1.0
    name: str = ""


def scaled_file(text: str) -> ScaledFile:
    """Reads `[NAME=]FILE[:SCALE]`, which has been checked."""
    match = _scaled_file(text)
    return ScaledFile(match["path"], float(match["scale"] or 1), match["name"] or "")


def with_path(text: str, placed: Callable[[str], str]) -> str:
    """The same name and scale with another path for the file."""
    match = _scaled_file(text)
    return text[: match.start("path")] + placed(match["path"]) + text[match.end("path") :]


def _scaled_file(text: str) -> re.Match[str]:
    match = _SCALED_FILE.fullmatch(text)
    assert match is not None, text
    return match


def scaled_file_problem(text: str) -> str | None:
    """Says what is wrong with a file and its scale; None if nothing is."""
    match = _SCALED_FILE.fullmatch(text)
    if match is not None and abs(float(match["scale"] or 1)) <= MAX_SCALE:
        return None
    return f"{text!r} is no file with a scale: give FILE, FILE:0.5 or NAME=FILE:0.5, at most {MAX_SCALE}"


def layers_problem(text: str) -> str | None:
    """Says what is wrong with the first and the last of some layers; None if nothing is."""
    is_right = re.fullmatch(r"\d{1,6},\d{1,6}", text)
    return None if is_right else f"{text!r} are no two layers: give the first and the last, such as 8,24"


def template_values_problem(text: str) -> str | None:
    """Says what is wrong with the variables for a chat template; None if nothing is."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        return f'{text!r} is no JSON object: give one such as {{"enable_thinking": false}}'
    taken = [name for name in RESERVED if name in values]
    return f"{taken[0]!r} comes from each request: leave it out" if taken else None


def template_values(texts: Sequence[str]) -> dict[str, Any]:
    """The variables for a chat template, which have been checked: of two values for one name, the later."""
    return {name: value for text in texts for name, value in json.loads(text).items()}


def url_problem(text: str) -> str | None:
    """Says what is wrong with a URL; None if it looks like one. Whether anything answers there shows later."""
    scheme, colon, rest = text.partition("://")
    if colon and rest and scheme.isalnum():
        return None
    return f"{text!r} is no URL: give one such as redis://host:6379/0 or s3://bucket/folder"
