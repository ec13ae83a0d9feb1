"""Replies as OpenAI's responses: a list of items, whole or event by event."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from msgspec.structs import replace

from leftoff.scheduler.job import Finish
from leftoff.server.http.errors import as_api_error
from leftoff.server.http.framing import NAMED_EVENTS, Pulse
from leftoff.server.reply.blocks import Block, Blocks, Closed, Grown, Opened, Step
from leftoff.server.reply.response import Whole
from leftoff.server.reply.stream import End, Event, Piece, Progress, ReplyStream
from leftoff.server.request.fields import FunctionCall, Message, ToolCall
from leftoff.server.responses.convert import wrapped
from leftoff.server.responses.types import (
    ArgumentsDelta,
    ArgumentsDone,
    CallItem,
    Completed,
    Created,
    CutOff,
    Failed,
    Failure,
    Incomplete,
    InProgress,
    InputDetails,
    ItemAdded,
    ItemDone,
    MessageItem,
    OutputDetails,
    OutputItem,
    OutputText,
    PartAdded,
    PartDone,
    ReasoningDelta,
    ReasoningDone,
    ReasoningItem,
    ReasoningText,
    Response,
    ResponseEvent,
    ResponseUsage,
    Status,
    TextDelta,
    TextDone,
)

_PREFIXES = {"text": "msg", "reasoning": "rs", "call": "fc"}  # of the ids of items

Keep = Callable[[Response, Message], None]


@dataclass
class ResponseWriter:
    """`begun` is the response while it is empty. `keep` is called with the response at its end, and with the reply."""

    begun: Response
    keep: Keep
    framing = NAMED_EVENTS
    last = b""
    shows_progress = True
    _blocks: Blocks = field(default_factory=Blocks)
    _numbers: Iterator[int] = field(default_factory=count)
    _pulse: Pulse | None = None

    def whole(self, replies: Sequence[Whole]) -> Response:
        (reply,) = replies
        self._blocks = Blocks.of(reply)
        return self._ended(reply.stream, reply.end)

    def chunks(self, stream: ReplyStream, index: int, event: Event) -> Iterator[ResponseEvent]:  # noqa: ARG002
        for said in self._progress() if isinstance(event, Progress) else self._events(stream, event):
            yield self._numbered(said)

    def failure(self, error: Exception) -> ResponseEvent:
        known = as_api_error(error)
        failed = replace(self.begun, status="failed", error=Failure(known.code or known.kind, known.message))
        return self._numbered(Failed(failed))

    def _numbered(self, event: ResponseEvent) -> ResponseEvent:
        event.sequence_number = next(self._numbers)
        return event

    def _progress(self) -> Iterator[ResponseEvent]:
        if self._pulse is None:
            self._pulse = Pulse()
            yield Created(self.begun)
            yield InProgress(self.begun)
        elif self._pulse.beats():
            yield InProgress(self.begun)

    def _events(self, stream: ReplyStream, event: Piece | End) -> Iterator[ResponseEvent]:
        items = self._items(stream)
        status = status_of(event) if isinstance(event, End) else "completed"
        for step in self._blocks.take(event):
            yield from items.events(step, status)
        if isinstance(event, End):
            response = self._ended(stream, event)
            yield Completed(response) if status == "completed" else CutOff(response)

    def _ended(self, stream: ReplyStream, end: End) -> Response:
        status = status_of(end)
        response = replace(
            self.begun,
            status=status,
            incomplete_details=None if status == "completed" else Incomplete("max_output_tokens"),
            output=self._output(stream, status),
            usage=self._usage(end),
        )
        self.keep(response, self._message(stream))
        return response

    def _output(self, stream: ReplyStream, status: Status) -> list[OutputItem]:
        """`status` is that of the last item: all before it are complete."""
        items, blocks = self._items(stream), self._blocks.all
        return [items.item(block, status if block is blocks[-1] else "completed") for block in blocks]

    def _message(self, stream: ReplyStream) -> Message:
        calls = [
            ToolCall(FunctionCall(block.name, block.text), stream.call_id(block.call), "function")
            for block in self._blocks.all
            if block.kind == "call"
        ]
        text, reasoning = self._blocks.text("text"), self._blocks.text("reasoning")
        return Message("assistant", text, tool_calls=calls or None, reasoning_content=reasoning or None)

    def _items(self, stream: ReplyStream) -> "_ItemWriter":
        return _ItemWriter(self.begun.id.removeprefix("resp_"), stream.call_id)

    def _usage(self, end: End) -> ResponseUsage | None:
        report, generated = end.report, end.timings.num_generated
        if report is None:
            return None
        return ResponseUsage(
            report.prompt_tokens,
            InputDetails(report.reused, report.computed),
            generated,
            OutputDetails(self._blocks.num_reasoning_tokens),
            report.prompt_tokens + generated,
        )


def status_of(end: End) -> Status:
    return "incomplete" if end.finish is Finish.LENGTH else "completed"


@dataclass(frozen=True)
class _ItemWriter:
    """Blocks as the items of a response. `name` makes the ids of items unique; `call_id` is the reply's."""

    name: str
    call_id: Callable[[int], str]

    def item(self, block: Block, status: Status) -> OutputItem:
        item_id = self._id(block)
        match block.kind:
            case "text":
                return MessageItem(item_id, status, [OutputText(block.text)] if block.text else [])
            case "reasoning":
                content = [ReasoningText(block.text)] if block.text else []
                return ReasoningItem(item_id, status, content, wrapped(block.text))
            case "call":
                return CallItem(item_id, status, self.call_id(block.call), block.name, block.text)

    def events(self, step: Step, status: Status) -> Iterator[ResponseEvent]:
        """The events for a change of a block. `status` is for an item that is done."""
        match step:
            case Opened(block):
                yield ItemAdded(block.index, self.item(block, "in_progress"))
                if block.kind != "call":
                    yield PartAdded(block.index, self._id(block), part=_part(block))
            case Grown(block, text):
                yield self._delta(block, text)
            case Closed(block):
                yield self._done(block)
                if block.kind != "call":
                    yield PartDone(block.index, self._id(block), part=_part(block))
                yield ItemDone(block.index, self.item(block, status))

    def _delta(self, block: Block, text: str) -> ResponseEvent:
        match block.kind:
            case "text":
                return TextDelta(block.index, self._id(block), delta=text)
            case "reasoning":
                return ReasoningDelta(block.index, self._id(block), delta=text)
            case "call":
                return ArgumentsDelta(block.index, self._id(block), text)

    def _done(self, block: Block) -> ResponseEvent:
        match block.kind:
            case "text":
                return TextDone(block.index, self._id(block), text=block.text)
            case "reasoning":
                return ReasoningDone(block.index, self._id(block), text=block.text)
            case "call":
                return ArgumentsDone(block.index, self._id(block), block.name, block.text)

    def _id(self, block: Block) -> str:
        return f"{_PREFIXES[block.kind]}_{self.name}_{block.index}"


def _part(block: Block) -> OutputText | ReasoningText:
    return OutputText(block.text) if block.kind == "text" else ReasoningText(block.text)
