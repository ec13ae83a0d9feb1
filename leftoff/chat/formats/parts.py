"""The parts that the text of a reply is parsed into, in the order in which the model wrote them.

Consecutive parts of one kind belong together: they are cut only because the text arrives token by token.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class Content:
    """Text for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Text that the model wrote before its answer."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool call begins. Calls are numbered from 0 within a reply."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """The next piece of a call's arguments. All pieces together are a JSON object."""

    index: int
    text: str


Part = Content | Reasoning | CallStart | CallArguments


@dataclass(frozen=True)
class Call:
    """A whole tool call; `arguments` is JSON text."""

    name: str
    arguments: str


@dataclass(frozen=True)
class ParsedReply:
    """A whole reply."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()


def join_parts(parts: Iterable[Part]) -> ParsedReply:
    """The content, reasoning and calls of a whole reply."""
    content: list[str] = []
    reasoning: list[str] = []
    names: list[str] = []
    arguments: list[list[str]] = []
    for part in parts:
        match part:
            case Content(text):
                content.append(text)
            case Reasoning(text):
                reasoning.append(text)
            case CallStart(_, name):
                names.append(name)
                arguments.append([])
            case CallArguments(index, text):
                arguments[index].append(text)
    calls = tuple(Call(name, "".join(texts)) for name, texts in zip(names, arguments, strict=True))
    return ParsedReply("".join(content), "".join(reasoning), calls)


def parse_arguments(text: str) -> dict[str, Any] | None:
    """A call's arguments; None if they are not a JSON object, for example because the reply was cut off."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None
