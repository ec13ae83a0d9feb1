"""Anthropic's wire types for /v1/messages.

Fields that only Anthropic's own servers honour (`metadata`, `context_management`, …) are not declared, and so ignored.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from leftoff.server.request.fields import MOST_MESSAGES, MOST_TOOLS, GenerationFields, Stops

Role = Literal["user", "assistant", "system"]
StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]

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
    """Where a document comes from: its text (`data`), blocks of content, or a file that is no text."""

    type: str
    data: str | None = None
    content: Any = None


class InputMessage(Struct):
    """One message of the conversation."""

    role: Role
    content: str | Annotated[list[InputBlock], Meta(max_length=MOST_MESSAGES)]


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


class OutputConfig(Struct):
    """The field `output_config`: effort and format."""

    effort: str | None = None
    format: dict[str, Any] | None = None


class MessagesRequest(GenerationFields, kw_only=True):
    """The body of /v1/messages."""

    messages: Annotated[list[InputMessage], Meta(min_length=1, max_length=MOST_MESSAGES)]
    model: str | None = None
    system: str | Annotated[list[InputBlock], Meta(max_length=MOST_MESSAGES)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=MOST_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    stop_sequences: Stops | None = None
    output_config: OutputConfig | None = None
    chat_template_kwargs: dict[str, Any] | None = None


# --- replies


class Usage(Struct):
    """The prompt in three parts: [0 ·· cache_read ·· )[ ·· cache_creation ·· last mark)[ ·· input ·· )."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class TextBlock(Struct, tag_field="type", tag="text"):
    """A block of text in a reply."""

    text: str
    citations: None = None


class ThinkingBlock(Struct, tag_field="type", tag="thinking"):
    """A block of reasoning in a reply."""

    thinking: str
    signature: str


class ToolUseBlock(Struct, tag_field="type", tag="tool_use"):
    """A tool call in a reply."""

    id: str
    name: str
    input: dict[str, Any]


OutputBlock = TextBlock | ThinkingBlock | ToolUseBlock


class OutputMessage(Struct, tag_field="type", tag="message"):
    """A whole reply."""

    id: str
    model: str
    content: list[OutputBlock]
    usage: Usage
    role: str = "assistant"
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None


class ErrorDetails(Struct):
    """The type and message of an error."""

    type: str
    message: str


class ErrorBody(Struct):
    """An error in Anthropic's shape."""

    error: ErrorDetails
    type: Literal["error"] = "error"


# --- the events of streams


class Delta(Struct):
    """An addition to a block, named by `type`; without one, why the message ended."""

    type: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    thinking: str | UnsetType = UNSET
    signature: str | UnsetType = UNSET
    partial_json: str | UnsetType = UNSET
    stop_reason: StopReason | UnsetType = UNSET
    stop_sequence: str | UnsetType | None = UNSET


class StreamEvent(Struct):
    """A message or a block begins, grows or ends; or a ping."""

    type: str
    index: int | UnsetType = UNSET
    message: OutputMessage | UnsetType = UNSET
    content_block: OutputBlock | UnsetType = UNSET
    delta: Delta | UnsetType = UNSET
    usage: Usage | UnsetType = UNSET
