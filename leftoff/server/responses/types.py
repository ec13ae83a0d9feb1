"""OpenAI's wire types for /v1/responses: requests, responses, and the events of streams."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from leftoff.server.request.fields import MOST_MESSAGES, MOST_TOOLS, GenerationFields
from leftoff.server.request.sampling import Limit

Status = Literal["in_progress", "completed", "incomplete", "failed"]
ItemDict = dict[str, Any]  # an item of any type, as it is kept in a conversation

# --- requests


class InputItem(Struct):
    """An input item of any type. Which fields a type requires is checked in `convert.py`."""

    type: str = "message"
    id: str | None = None  # of the item that an `item_reference` stands for
    role: str | None = None
    content: Any = None
    summary: Any = None
    encrypted_content: str | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None  # of the function that is called
    arguments: str | None = None
    output: Any = None


class Effort(Struct):
    """The field `reasoning`: how much to think."""

    effort: str | None = None
    summary: str | None = None


class TextFormat(Struct, omit_defaults=True):
    """The form of the text: plain, JSON, or JSON by a schema."""

    type: str
    name: str | None = None
    schema: dict[str, Any] | None = None
    strict: bool | None = None


class Text(Struct, omit_defaults=True):
    """The field `text`."""

    format: TextFormat | None = None
    verbosity: str | None = None


class ResponsesRequest(GenerationFields, kw_only=True):
    """The body of /v1/responses."""

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


class ConversationRequest(Struct):
    """The body of /v1/conversations."""

    items: Annotated[list[ItemDict], Meta(max_length=MOST_MESSAGES)] | None = None
    metadata: dict[str, Any] | None = None


class ItemsRequest(Struct):
    """The body of /v1/conversations/{id}/items."""

    items: Annotated[list[ItemDict], Meta(max_length=MOST_MESSAGES)]


# --- responses


class OutputText(Struct, tag_field="type", tag="output_text"):
    """Text inside a message item."""

    text: str
    annotations: list[None] = field(default_factory=list)
    logprobs: list[None] = field(default_factory=list)


class ReasoningText(Struct, tag_field="type", tag="reasoning_text"):
    """Text inside a reasoning item."""

    text: str


class MessageItem(Struct, tag_field="type", tag="message"):
    """A message of the model."""

    id: str
    status: Status
    content: list[OutputText]
    role: str = "assistant"


class ReasoningItem(Struct, tag_field="type", tag="reasoning"):
    """The model's reasoning."""

    id: str
    status: Status
    content: list[ReasoningText]
    encrypted_content: str  # the same text, for clients that send nothing else back
    summary: list[None] = field(default_factory=list)


class CallItem(Struct, tag_field="type", tag="function_call"):
    """A function call."""

    id: str
    status: Status
    call_id: str
    name: str
    arguments: str
    namespace: str | UnsetType = UNSET  # that the client has put the function in


OutputItem = MessageItem | ReasoningItem | CallItem


class InputDetails(Struct):
    """How many tokens of the prompt came from the cache."""

    cached_tokens: int
    cache_write_tokens: int


class OutputDetails(Struct):
    """How many tokens of the reply are reasoning."""

    reasoning_tokens: int


class ResponseUsage(Struct):
    """Token counts of a response."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class Failure(Struct):
    """The error of a failed response."""

    code: str
    message: str


class Incomplete(Struct):
    """The reason why a response is incomplete."""

    reason: str


class ConversationName(Struct):
    """The conversation that a response belongs to."""

    id: str


class Response(Struct, kw_only=True):
    """As OpenAI does, it repeats the settings of the request."""

    id: str
    created_at: int
    model: str
    object: str = "response"
    status: Status = "in_progress"
    background: bool = False
    conversation: ConversationName | None = None
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


# --- the events of a streamed response


class ResponseEvent(Struct, kw_only=True):
    """Events are numbered in the order in which they are sent."""

    type: str
    sequence_number: int = 0


class StateEvent(ResponseEvent):
    """The response was created, is in progress, or ended."""

    response: Response


class ItemEvent(ResponseEvent):
    """An item was added, or is done."""

    output_index: int
    item: OutputItem


class PartEvent(ResponseEvent):
    """The only part of an item was added, or is done. Calls have no parts."""

    output_index: int
    item_id: str
    part: OutputText | ReasoningText
    content_index: int = 0


class TextEvent(ResponseEvent):
    """More text of an item (`delta`), or all of it: `text`, or the `name` and `arguments` of a call."""

    output_index: int
    item_id: str
    content_index: int | UnsetType = UNSET  # of texts and reasoning
    logprobs: list[None] | UnsetType = UNSET  # of texts
    delta: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET
