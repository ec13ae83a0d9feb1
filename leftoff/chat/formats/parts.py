"""What a reply is made of, in the order in which it was written.

A parser turns the text of a reply into parts as it comes. Parts of one kind that follow each other belong together:
whoever wants the whole joins them.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True, slots=True)
class Content:
    """Words for the user."""

    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Words the model wrote for itself."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A tool is called. Calls are counted from 0 within a reply."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """Some more of a call's arguments: all of them together are one JSON object, as text."""

    index: int
    text: str


Part = Content | Reasoning | CallStart | CallArguments


@dataclass(frozen=True)
class Call:
    name: str
    arguments: str


@dataclass(frozen=True)
class Said:
    """A whole reply, part by part joined."""

    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()


def join(parts: Iterable[Part]) -> Said:
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
    return Said("".join(content), "".join(reasoning), calls)


def object_of(arguments: str) -> dict[str, Any] | None:
    """A call's arguments; None where they are no object, as those that were cut off."""
    try:
        return msgspec.json.decode(arguments, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return None
