"""OpenAI's wire types for /v1/responses: requests, responses, and the events of streams."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from leftoff.server.request.fields import MOST_MESSAGES, MOST_TOOLS, GenerationFields
from leftoff.server.request.sampling import Limit

Status = Literal["in_progress", "completed", "incomplete", "failed"]

# --- requests


class InputItem(Struct):
    """An input item of any type. Which fields a type requires is checked in `convert.py`."""

    type: str = "message"
    role: str | None = None
    content: Any = None
    summary: Any = None
    encrypted_content: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: Any = None


class Effort(Struct):
    effort: str | None = None
    summary: str | None = None


class TextFormat(Struct, omit_defaults=True):
    type: str
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class Text(Struct, omit_defaults=True):
    format: TextFormat | None = None
    verbosity: str | None = None


class ResponsesRequest(GenerationFields, kw_only=True):
    input: str | Annotated[list[InputItem], Meta(max_length=MOST_MESSAGES)] | None = None
    model: str | None = None
    instructions: str | None = None
    tools: Annotated[list[dict[str, Any]], Meta(max_length=MOST_TOOLS)] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Effort | None = None
    text: Text | None = None
    max_output_tokens: Limit | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    metadata: dict[str, Any] | None = None
    top_logprobs: int | None = None
    background: bool | None = None
    conversation: Any = None
    prompt: Any = None
    chat_template_kwargs: dict[str, Any] | None = None


# --- responses


class OutputText(Struct, tag_field="type", tag="output_text"):
    text: str
    annotations: list[None] = field(default_factory=list)
    logprobs: list[None] = field(default_factory=list)


class ReasoningText(Struct, tag_field="type", tag="reasoning_text"):
    text: str


class MessageItem(Struct, tag_field="type", tag="message"):
    id: str
    status: Status
    content: list[OutputText]
    role: str = "assistant"


class ReasoningItem(Struct, tag_field="type", tag="reasoning"):
    id: str
    status: Status
    content: list[ReasoningText]
    encrypted_content: str  # the same text, for clients that send nothing else back
    summary: list[None] = field(default_factory=list)


class CallItem(Struct, tag_field="type", tag="function_call"):
    id: str
    status: Status
    call_id: str
    name: str
    arguments: str


OutputItem = MessageItem | ReasoningItem | CallItem


class InputDetails(Struct):
    cached_tokens: int
    cache_write_tokens: int


class OutputDetails(Struct):
    reasoning_tokens: int


class ResponseUsage(Struct):
    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class Failure(Struct):
    code: str
    message: str


class Incomplete(Struct):
    reason: str


class Response(Struct, kw_only=True):
    """As OpenAI does, it repeats the settings of the request."""

    id: str
    created_at: int
    model: str
    object: str = "response"
    status: Status = "in_progress"
    background: bool = False
    error: Failure | None = None
    incomplete_details: Incomplete | None = None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, Any]
    output: list[OutputItem] = field(default_factory=list)
    parallel_tool_calls: bool
    previous_response_id: str | None
    reasoning: Effort
    store: bool
    temperature: float | None
    text: Text
    tool_choice: str | dict[str, Any]
    tools: list[dict[str, Any]]
    top_p: float | None
    truncation: str = "disabled"
    usage: ResponseUsage | None = None
    user: str | None


class Deleted(Struct):
    id: str
    object: str = "response"
    deleted: bool = True


# --- the events of a streamed response


class ResponseEvent(Struct, tag_field="type", kw_only=True):
    """Named by its type, and numbered in the order of sending."""

    sequence_number: int = 0


class Created(ResponseEvent, tag="response.created"):
    response: Response


class InProgress(ResponseEvent, tag="response.in_progress"):
    response: Response


class Completed(ResponseEvent, tag="response.completed"):
    response: Response


class CutOff(ResponseEvent, tag="response.incomplete"):
    response: Response


class Failed(ResponseEvent, tag="response.failed"):
    response: Response


class ItemAdded(ResponseEvent, tag="response.output_item.added"):
    output_index: int
    item: OutputItem


class ItemDone(ResponseEvent, tag="response.output_item.done"):
    output_index: int
    item: OutputItem


class _OfItem(ResponseEvent):
    output_index: int
    item_id: str


class _OfPart(_OfItem, kw_only=True):
    content_index: int = 0  # no item has more than one part


class PartAdded(_OfPart, tag="response.content_part.added"):
    part: OutputText | ReasoningText


class PartDone(_OfPart, tag="response.content_part.done"):
    part: OutputText | ReasoningText


class TextDelta(_OfPart, tag="response.output_text.delta"):
    delta: str
    logprobs: list[None] = field(default_factory=list)


class TextDone(_OfPart, tag="response.output_text.done"):
    text: str
    logprobs: list[None] = field(default_factory=list)


class ReasoningDelta(_OfPart, tag="response.reasoning_text.delta"):
    delta: str


class ReasoningDone(_OfPart, tag="response.reasoning_text.done"):
    text: str


class ArgumentsDelta(_OfItem, tag="response.function_call_arguments.delta"):
    delta: str


class ArgumentsDone(_OfItem, tag="response.function_call_arguments.done"):
    name: str
    arguments: str
