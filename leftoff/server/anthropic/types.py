"""Anthropic's wire types: what is asked and answered under /v1/messages.

Fields that only Anthropic's own servers can honour (`metadata`, `context_management`, …) are not named, and so ignored.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from leftoff.server.request.fields import MOST_MESSAGES, MOST_TOOLS, GenerationFields, Stops

Role = Literal["user", "assistant", "system"]
StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]

# --- asked


class InputBlock(Struct):
    """A piece of a message, of any type: which fields it must have is seen when it is read."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    content: Any = None
    cache_control: dict[str, Any] | None = None


class InputMessage(Struct):
    role: Role
    content: str | Annotated[list[InputBlock], Meta(max_length=MOST_MESSAGES)]


class Tool(Struct):
    """A tool without a schema is one that Anthropic's servers run, or describe to their own models."""

    name: str = ""
    type: str | None = None
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class ToolChoice(Struct):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Struct):
    """How much of it is up to the model: a budget is accepted and not enforced."""

    type: str


class OutputConfig(Struct):
    effort: str | None = None
    format: dict[str, Any] | None = None


class MessagesRequest(GenerationFields, kw_only=True):
    messages: Annotated[list[InputMessage], Meta(min_length=1, max_length=MOST_MESSAGES)]
    model: str | None = None
    system: str | Annotated[list[InputBlock], Meta(max_length=MOST_MESSAGES)] | None = None
    tools: Annotated[list[Tool], Meta(max_length=MOST_TOOLS)] | None = None
    tool_choice: ToolChoice | None = None
    thinking: Thinking | None = None
    stop_sequences: Stops | None = None
    output_config: OutputConfig | None = None
    chat_template_kwargs: dict[str, Any] | None = None


# --- answered


class TokenCount(Struct):
    input_tokens: int


class Usage(Struct):
    """[0 ·· cache_read ·· )[ ·· cache_creation ·· last mark)[ ·· input ·· ): what was read is the sum of the three."""

    input_tokens: int
    cache_creation_input_tokens: int
    cache_read_input_tokens: int
    output_tokens: int


class TextBlock(Struct, tag_field="type", tag="text"):
    text: str
    citations: None = None


class ThinkingBlock(Struct, tag_field="type", tag="thinking"):
    thinking: str
    signature: str


class ToolUseBlock(Struct, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, Any]


OutputBlock = TextBlock | ThinkingBlock | ToolUseBlock


class OutputMessage(Struct, tag_field="type", tag="message"):
    id: str
    model: str
    content: list[OutputBlock]
    usage: Usage
    role: str = "assistant"
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None


class ErrorDetails(Struct):
    type: str
    message: str


class ErrorBody(Struct, tag_field="type", tag="error"):
    error: ErrorDetails


# --- streamed


class MessageStart(Struct, tag_field="type", tag="message_start"):
    message: OutputMessage


class Ping(Struct, tag_field="type", tag="ping"):
    pass


class BlockStart(Struct, tag_field="type", tag="content_block_start"):
    index: int
    content_block: OutputBlock


class TextDelta(Struct, tag_field="type", tag="text_delta"):
    text: str


class ThinkingDelta(Struct, tag_field="type", tag="thinking_delta"):
    thinking: str


class SignatureDelta(Struct, tag_field="type", tag="signature_delta"):
    signature: str


class InputDelta(Struct, tag_field="type", tag="input_json_delta"):
    partial_json: str


class BlockDelta(Struct, tag_field="type", tag="content_block_delta"):
    index: int
    delta: TextDelta | ThinkingDelta | SignatureDelta | InputDelta


class BlockStop(Struct, tag_field="type", tag="content_block_stop"):
    index: int


class StopDelta(Struct):
    stop_reason: StopReason
    stop_sequence: str | None


class MessageDelta(Struct, tag_field="type", tag="message_delta"):
    delta: StopDelta
    usage: Usage


class MessageStop(Struct, tag_field="type", tag="message_stop"):
    pass
