"""Ollama's wire types. Options for loading models (`num_ctx`, …) are not declared, and so ignored."""

import math
import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from msgspec import Meta, Struct, field

from leftoff.server.http.errors import bad_field
from leftoff.server.request.fields import MAX_MESSAGES, MAX_TOOLS, GenerationFields, Role

_UNIT_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h|)")
_DURATION = re.compile(rf"[+-]?(?:{_PART.pattern})+$")

# --- requests


class Options(GenerationFields, kw_only=True):
    """The field `options`: sampling and limits."""

    num_predict: Annotated[int, Meta(ge=-2, le=2**31 - 1)] | None = None  # -1: no limit; -2: as many as fit


class Function(Struct):
    """The function and arguments of a call."""

    name: str
    arguments: dict[str, Any] = field(default_factory=dict)


class Call(Struct):
    """A call in a message."""

    function: Function
    id: str | None = None


class OllamaMessage(Struct):
    """One message of a chat."""

    role: Role
    content: str | None = None
    thinking: str | None = None
    images: Annotated[list[str], Meta(max_length=MAX_MESSAGES)] | None = None  # in base64
    tool_calls: Annotated[list[Call], Meta(max_length=MAX_TOOLS)] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class _Request(Struct, kw_only=True):
    model: str = ""
    format: str | dict[str, Any] | None = None
    options: Options | None = None
    stream: bool | None = None  # unlike in other dialects, streams unless false
    think: bool | str | None = None
    keep_alive: float | str | None = None  # seconds, or a duration such as 1h30m; below zero, for ever

    @property
    def keep_s(self) -> float | None:
        """For how many seconds the model may be idle from now on, if the request says so."""
        if self.keep_alive is None:
            return None
        text = str(self.keep_alive).strip()
        sign, parts = _DURATION.match(text), _PART.findall(text)
        if sign is None:
            raise bad_field("keep_alive", f"is {text[:40]!r}: give seconds, or a duration such as 5m, or -1 for ever")
        seconds = sum(float(number) * _UNIT_S[unit] for number, unit in parts)
        return math.inf if text.startswith("-") else seconds

    @property
    def unloads(self) -> bool:
        """Whether an empty request asks to unload the model, instead of loading it."""
        return self.keep_s == 0


class OllamaChatRequest(_Request, kw_only=True):
    """The body of /api/chat."""

    is_chat: ClassVar[bool] = True
    messages: Annotated[list[OllamaMessage], Meta(max_length=MAX_MESSAGES)] | None = None
    tools: Annotated[list[dict[str, Any]], Meta(max_length=MAX_TOOLS)] | None = None

    @property
    def is_empty(self) -> bool:
        return not self.messages

    def picture_texts(self) -> Iterator[str]:
        return (image for message in self.messages or () for image in message.images or ())


class OllamaGenerateRequest(_Request, kw_only=True):
    """The body of /api/generate."""

    is_chat: ClassVar[bool] = False
    prompt: str = ""
    system: str | None = None
    raw: bool | None = None
    suffix: str | None = None
    template: str | None = None
    images: Annotated[list[str], Meta(max_length=MAX_MESSAGES)] | None = None  # in base64

    @property
    def is_empty(self) -> bool:
        return not self.prompt

    def picture_texts(self) -> Iterator[str]:
        return iter(self.images or ())


class ShowRequest(Struct):
    """The body of /api/show."""

    model: str = ""
    name: str = ""  # the former name of `model`


# --- errors


class ErrorBody(Struct):
    """An error in Ollama's shape."""

    error: str
