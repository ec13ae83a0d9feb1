"""The events of a streamed response, each named by its type and numbered in the order in which they are sent."""

from msgspec import Struct, field

from leftoff.server.responses.types import OutputItem, OutputText, ReasoningText, Response


class ResponseEvent(Struct, tag_field="type", kw_only=True):
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
