"""A request of any dialect as one body: what holds for OpenAI's chats then holds for all of them."""

from collections.abc import Sequence
from typing import Any

import msgspec

from leftoff.chat.notes import Note
from leftoff.server.http.errors import bad_field
from leftoff.server.openai.types import ChatRequest
from leftoff.server.request.fields import ForeignFormat, GenerationFields, ResponseFormat

_SHOWN_CHARACTERS = 200


class ForeignChat(ChatRequest, kw_only=True):
    """Of another dialect, whose clients know the schemas of their tools by other names."""

    places: dict[str, str]

    @property
    def tool_places(self) -> dict[str, str]:
        return self.places


def chat_body(body: GenerationFields, *, places: dict[str, str] | None = None, **fields: Any) -> ChatRequest:  # noqa: ANN401
    """The fields that all dialects share are taken from `body`, unless they are given."""
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
