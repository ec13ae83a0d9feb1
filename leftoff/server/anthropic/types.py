"""Anthropic's wire types for /v1/messages.

Fields that only Anthropic's own servers honour (`metadata`, `context_management`, …) are not declared, and so ignored.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from leftoff.server.request.fields import MAX_MESSAGES, MAX_TOOLS, GenerationFields, Stops

Role = Literal["user", "assistant", "system"]

# --- requests


class InputBlock(Struct):
    """A content block of any type. Which fields a type requires is checked in `convert.py`."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    tool_name: str | None = None
    content: Any = None
    source: Any = None
    title: str | None = None
    context: str | None = None
    cache_control: dict[str, Any] | None = None


class Source(Struct):
    """Where a picture or document comes from: its text or base64 (`data`), blocks of content, or a URL."""

    type: str
    data: str | None = None
    url: str | None = None
    content: Any = None


class InputMessage(Struct):
    """One message of the conversation."""

    role: Role
    content: str | Annotated[list[InputBlock], Meta(max_length=MAX_MESSAGES)]


class Tool(Struct):
    """A tool without a schema is one that Anthropic's servers run, or describe to their own models.

    One whose loading is deferred is described where a `tool_reference` names it: so the header stays as it is.
    """

    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None
    defer_loading: bool | None = None


class ToolChoice(Struct):
    """Which tools the model may or must use."""

    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Struct):
    """Whether the model reasons. A budget is accepted and not enforced."""

    type: str


class OutputFormat(Struct):
    """The form of the text: JSON by a schema."""

    type: Literal["json_schema"]
    schema: dict[str, Any] | None = None


class OutputConfig(Struct):
    """The field `output_config`: effort and format."""

    effort: str | None = None
    format: OutputFormat | None = None


class MessagesRequest(GenerationFields, kw_only=True):
    """The body of /v1/messages."""

    messages: Annotated[list[InputMessage], Meta(min_length=1, max_length=MAX_MESSAGES)]
    system: str | Annotated[list[InputBlock], Meta(max_length=MAX_MESSAGES)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    stop_sequences: Stops | None = None
    output_config: OutputConfig | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    def picture_texts(self) -> Iterator[str | None]:
        """The base64 of the pictures in messages, and in the results of tools there."""
        contents = [message.content for message in self.messages if isinstance(message.content, list)]
        for block in chain.from_iterable(contents):
            if block.type == "image":
                yield _data(block.source)
            elif block.type == "tool_result" and isinstance(block.content, list):
                images = (inner for inner in block.content if isinstance(inner, dict) and inner.get("type") == "image")
                yield from (_data(inner.get("source")) for inner in images)


def _data(source: object) -> str | None:
    return source.get("data") if isinstance(source, dict) else None


# --- errors


class ErrorDetails(Struct):
    """The type and message of an error."""

    type: str
    message: str


class ErrorBody(Struct):
    """An error in Anthropic's shape."""

    error: ErrorDetails
    type: Literal["error"] = "error"
