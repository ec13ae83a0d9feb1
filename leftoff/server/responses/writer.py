"""Replies as OpenAI's responses: a list of items, whole or event by event."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from msgspec import UNSET
from msgspec.structs import replace

from leftoff.scheduler.job import Finish
from leftoff.server.http.errors import as_api_error
from leftoff.server.reply.blocks import Block, Blocks, Closed, Grown, Opened, Step
from leftoff.server.reply.response import NAMED_EVENTS, Whole, Writer
from leftoff.server.reply.stream import End, Event, Piece, Progress, ReplyStream
from leftoff.server.request.fields import FunctionCall, Message, ToolCall
from leftoff.server.responses import types as wire
from leftoff.server.responses.convert import Function, wrapped

_ID_PREFIXES = {"text": "msg", "reasoning": "rs", "call": "fc"}
_TEXT_EVENTS = {
    "text": "response.output_text",
    "reasoning": "response.reasoning_text",
    "call": "response.function_call_arguments",
}

Keep = Callable[[wire.Response, Message], None]


@dataclass
class ResponseWriter(Writer):
    """`begun` is the response while it is empty. `keep` is called with the response at its end, and with the reply.

    `functions` are those in namespaces, by the names that the model knows them under.
    """

    begun: wire.Response
    keep: Keep
    functions: Mapping[str, Function] = field(default_factory=dict)
    framing = NAMED_EVENTS
    shows_progress = True
    _blocks: Blocks = field(default_factory=Blocks)
    _numbers: Iterator[int] = field(default_factory=count)
    _has_begun: bool = False

    def whole(self, replies: Sequence[Whole]) -> wire.Response:
        (reply,) = replies
        self._blocks = Blocks.of(reply)
        return self._ended(reply.stream, reply.end)

    def chunks(self, stream: ReplyStream, index: int, event: Event) -> Iterator[wire.ResponseEvent]:  # noqa: ARG002
        for said in self._begin() if isinstance(event, Progress) else self._events(stream, event):
            yield self._numbered(said)

    def keep_alive(self, stream: ReplyStream) -> Iterator[wire.ResponseEvent]:  # noqa: ARG002
        """Codex counts events, not bytes."""
        if self._has_begun:
            yield self._numbered(wire.StateEvent(type="response.in_progress", response=self.begun))
        else:
            yield from map(self._numbered, self._begin())

    def failure(self, error: Exception) -> wire.ResponseEvent:
        known = as_api_error(error)
        failed = replace(self.begun, status="failed", error=wire.Failure(known.code or known.kind, known.message))
        return self._numbered(wire.StateEvent(type="response.failed", response=failed))

    def _numbered(self, event: wire.ResponseEvent) -> wire.ResponseEvent:
        event.sequence_number = next(self._numbers)
        return event

    def _begin(self) -> Iterator[wire.ResponseEvent]:
        if not self._has_begun:
            self._has_begun = True
            yield wire.StateEvent(type="response.created", response=self.begun)
            yield wire.StateEvent(type="response.in_progress", response=self.begun)

    def _events(self, stream: ReplyStream, event: Piece | End) -> Iterator[wire.ResponseEvent]:
        items = self._items(stream)
        status = status_of(event) if isinstance(event, End) else "completed"
        for step in self._blocks.take(event):
            yield from items.events(step, status)
        if isinstance(event, End):
            yield wire.StateEvent(type=f"response.{status}", response=self._ended(stream, event))

    def _ended(self, stream: ReplyStream, end: End) -> wire.Response:
        status = status_of(end)
        response = replace(
            self.begun,
            status=status,
            incomplete_details=None if status == "completed" else wire.Incomplete("max_output_tokens"),
            output=self._output(stream, status),
            usage=self._usage(end),
        )
        self.keep(response, self._message(stream))
        return response

    def _output(self, stream: ReplyStream, status: wire.Status) -> list[wire.OutputItem]:
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
        return _ItemWriter(self.begun.id.removeprefix("resp_"), stream.call_id, self.functions)

    def _usage(self, end: End) -> wire.ResponseUsage | None:
        report, generated = end.report, end.timings.num_generated
        if report is None:
            return None
        return wire.ResponseUsage(
            report.prompt_tokens,
            wire.InputDetails(report.reused, report.computed),
            generated,
            wire.OutputDetails(self._blocks.num_reasoning_tokens),
            report.prompt_tokens + generated,
        )


def status_of(end: End) -> wire.Status:
    """The status of a response that has ended."""
    return "incomplete" if end.finish is Finish.LENGTH else "completed"


@dataclass(frozen=True)
class _ItemWriter:
    """Blocks as the items of a response. `name` makes the ids of items unique; `call_id` is the reply's."""

    name: str
    call_id: Callable[[int], str]
    functions: Mapping[str, Function]

    def item(self, block: Block, status: wire.Status) -> wire.OutputItem:
        item_id = self._id(block)
        match block.kind:
            case "text":
                return wire.MessageItem(item_id, status, [wire.OutputText(block.text)] if block.text else [])
            case "reasoning":
                content = [wire.ReasoningText(block.text)] if block.text else []
                return wire.ReasoningItem(item_id, status, content, wrapped(block.text))
            case "call":
                call = wire.CallItem(item_id, status, self.call_id(block.call), block.name, block.text)
                if function := self.functions.get(block.name):
                    call.name, call.namespace = function.name, function.namespace
                return call

    def events(self, step: Step, status: wire.Status) -> Iterator[wire.ResponseEvent]:
        """The events for a change of a block. `status` is for an item that is done."""
        block = step.block
        match step:
            case Opened():
                yield self._item_event("added", block, "in_progress")
                if block.kind != "call":
                    yield self._part_event("added", block)
            case Grown(_, text):
                event = self._text_event("delta", block)
                event.delta = text
                yield event
            case Closed():
                event = self._text_event("done", block)
                if block.kind == "call":
                    function = self.functions.get(block.name)
                    event.name, event.arguments = function.name if function else block.name, block.text
                else:
                    event.text = block.text
                yield event
                if block.kind != "call":
                    yield self._part_event("done", block)
                yield self._item_event("done", block, status)

    def _item_event(self, change: str, block: Block, status: wire.Status) -> wire.ItemEvent:
        item = self.item(block, status)
        return wire.ItemEvent(type=f"response.output_item.{change}", output_index=block.index, item=item)

    def _part_event(self, change: str, block: Block) -> wire.PartEvent:
        part = wire.OutputText(block.text) if block.kind == "text" else wire.ReasoningText(block.text)
        name = f"response.content_part.{change}"
        return wire.PartEvent(type=name, output_index=block.index, item_id=self._id(block), part=part)

    def _text_event(self, change: str, block: Block) -> wire.TextEvent:
        return wire.TextEvent(
            type=f"{_TEXT_EVENTS[block.kind]}.{change}",
            output_index=block.index,
            item_id=self._id(block),
            content_index=UNSET if block.kind == "call" else 0,
            logprobs=[] if block.kind == "text" else UNSET,
        )

    def _id(self, block: Block) -> str:
        return f"{_ID_PREFIXES[block.kind]}_{self.name}_{block.index}"
