"""The chat body that every dialect is converted to: OpenAI's Chat Completions request with llama-server's fields."""

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from leftoff.chat.conversation import Note
from leftoff.server.http.errors import bad_field
from leftoff.server.request.fields import ForeignFormat, GenerationFields, ResponseFormat
from leftoff.server.request.messages import ChatFields

NumReplies = Annotated[int, Meta(ge=1, le=128)]

_SHOWN_CHARACTERS = 200


class StreamOptions(Struct):
    include_usage: bool | None = None


class ChatRequest(ChatFields, kw_only=True):
    """A chat, how to sample its reply, and how many replies are wanted."""

    model: str | None = None
    n: NumReplies | None = None
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=100)] | None = None


class ForeignChat(ChatRequest, kw_only=True):
    """A chat converted from another dialect; `places` maps a tool's name to the path of its schema in that dialect."""

    places: dict[str, str]

    @property
    def tool_places(self) -> dict[str, str]:
        return self.places


def chat_body(body: GenerationFields, *, places: dict[str, str] | None = None, **fields: Any) -> ChatRequest:  # noqa: ANN401
    """Build the common chat body: the generation fields of `body`, overridden by `fields`."""
    shared = {name: getattr(body, name) for name in GenerationFields.__struct_fields__}
    whole = shared | fields
    return ChatRequest(**whole) if places is None else ForeignChat(places=places, **whole)


def function_tool(name: str, description: str | None, parameters: dict[str, Any] | None) -> dict[str, Any]:
    """As templates show it; a tool without parameters takes none."""
    function = {"name": name, "description": description, "parameters": parameters or {"type": "object"}}
    return {"type": "function", "function": {key: value for key, value in function.items() if value is not None}}


def response_format(place: str, wanted: dict[str, Any]) -> ResponseFormat:
    try:
        return msgspec.convert(wanted | {"place": place}, ForeignFormat)
    except msgspec.ValidationError as error:
        raise bad_field(place, str(error)) from error


def skipped_tools(names: Sequence[str]) -> tuple[Note, ...]:
    """Tools that the client's usual server runs by itself: nobody here could."""
    shown = ", ".join(names)[:_SHOWN_CHARACTERS]
    return (Note("dropped", f"tools that only their makers run were left out: {shown}"),) if names else ()
