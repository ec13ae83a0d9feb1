"""OpenAI's wire types for the bodies of /v1/responses and /v1/conversations."""

from collections.abc import Iterator
from typing import Annotated, Any

from msgspec import Meta, Struct

from leftoff.server.request.content import picture_texts
from leftoff.server.request.fields import MAX_MESSAGES, MAX_TOOLS, GenerationFields
from leftoff.server.request.sampling import Limit

ItemDict = dict[str, Any]  # an item of any type, as it is kept in a conversation


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

    input: str | Annotated[list[InputItem], Meta(max_length=MAX_MESSAGES)] | None = None
    instructions: str | None = None
    tools: Annotated[list[dict[str, Any]], Meta(max_length=MAX_TOOLS)] | None = None
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

    def picture_texts(self) -> Iterator[str | None]:
        """The pictures of the input; none if the response is stored, since that is done with the texts themselves."""
        is_stored = self.store is not False or self.conversation is not None
        items = self.input if isinstance(self.input, list) and not is_stored else []
        for item in items:
            yield from picture_texts(item.content)
            yield from picture_texts(item.output)


class ConversationRequest(Struct):
    """The body of /v1/conversations."""

    items: Annotated[list[ItemDict], Meta(max_length=MAX_MESSAGES)] | None = None
    metadata: dict[str, Any] | None = None


class ItemsRequest(Struct):
    """The body of /v1/conversations/{id}/items."""

    items: Annotated[list[ItemDict], Meta(max_length=MAX_MESSAGES)]
