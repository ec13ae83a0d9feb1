"""Ollama's wire types. Options for loading models (`num_ctx`, …) are not declared, and so ignored."""

from typing import Annotated, Any

from msgspec import Meta, Struct, field

from leftoff.server.request.fields import MAX_MESSAGES, MAX_TOOLS, GenerationFields, Role

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
    images: list[Any] | None = None
    tool_calls: Annotated[list[Call], Meta(max_length=MAX_TOOLS)] | None = None
    tool_name: str | None = None
    tool_call_id: str | None = None


class _Request(Struct, kw_only=True):
    model: str = ""
    format: str | dict[str, Any] | None = None
    options: Options | None = None
    stream: bool | None = None  # unlike in other dialects, streams unless false
    think: bool | str | None = None
    keep_alive: Any = None  # a duration, or seconds

    @property
    def unloads(self) -> bool:
        """Whether an empty request asks to unload the model, instead of loading it."""
        return self.keep_alive in (0, "0", "0s", "0m", "0h")


class OllamaChatRequest(_Request, kw_only=True):
    """The body of /api/chat."""

    messages: Annotated[list[OllamaMessage], Meta(max_length=MAX_MESSAGES)] | None = None
    tools: Annotated[list[dict[str, Any]], Meta(max_length=MAX_TOOLS)] | None = None


class OllamaGenerateRequest(_Request, kw_only=True):
    """The body of /api/generate."""

    prompt: str = ""
    system: str | None = None
    raw: bool | None = None
    suffix: str | None = None
    template: str | None = None
    images: list[Any] | None = None


class ShowRequest(Struct):
    """The body of /api/show."""

    model: str = ""
    name: str = ""  # the former name of `model`


# --- errors


class ErrorBody(Struct):
    """An error in Ollama's shape."""

    error: str
