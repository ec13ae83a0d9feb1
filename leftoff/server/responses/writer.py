"""Replies as responses: a list of items, at once or event by event."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

from msgspec.structs import replace

from leftoff.scheduler.job import Finish
from leftoff.server.http.errors import as_api_error
from leftoff.server.http.framing import NAMED_EVENTS, Pulse
from leftoff.server.reply.blocks import Blocks
from leftoff.server.reply.response import Whole
from leftoff.server.reply.stream import End, Event, Piece, Progress, ReplyStream
from leftoff.server.request.messages import FunctionCall, Message, ToolCall
from leftoff.server.responses.events import Completed, Created, CutOff, Failed, InProgress, ResponseEvent
from leftoff.server.responses.items import ItemWriter
from leftoff.server.responses.types import (
    Failure,
    Incomplete,
    InputDetails,
    OutputDetails,
    OutputItem,
    Response,
    ResponseUsage,
    Status,
)

Keep = Callable[[Response, Message], None]


@dataclass
class ResponseWriter:
    """`begun` is the response before anything was said; `keep` gets it as it ended, and the reply as a message."""

    begun: Response
    keep: Keep
    framing = NAMED_EVENTS
    last = b""
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
        """Of a reply that was cut off, only the last item is."""
        items, blocks = self._items(stream), self._blocks.all
        return [items.item(block, status if block is blocks[-1] else "completed") for block in blocks]

    def _message(self, stream: ReplyStream) -> Message:
        def texts(kind: str) -> str:
            return "".join(block.text for block in self._blocks.all if block.kind == kind)

        calls = [
            ToolCall(FunctionCall(block.name, block.text), stream.call_id(block.call), "function")
            for block in self._blocks.all
            if block.kind == "call"
        ]
        return Message(
            "assistant", texts("text"), tool_calls=calls or None, reasoning_content=texts("reasoning") or None
        )

    def _items(self, stream: ReplyStream) -> ItemWriter:
        return ItemWriter(self.begun.id.removeprefix("resp_"), stream.call_id)

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
