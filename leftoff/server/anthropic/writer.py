"""Replies as Anthropic's messages: a list of content blocks, whole or event by event.

A tool call is sent once it is complete. One that was cut off is left out: clients run every call that they receive.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from leftoff.scheduler.job import Finish
from leftoff.server.anthropic.types import (
    BlockDelta,
    BlockStart,
    BlockStop,
    ErrorBody,
    ErrorDetails,
    InputDelta,
    MessageDelta,
    MessageStart,
    MessageStop,
    OutputBlock,
    OutputMessage,
    Ping,
    SignatureDelta,
    StopDelta,
    TextBlock,
    TextDelta,
    ThinkingBlock,
    ThinkingDelta,
    ToolUseBlock,
    Usage,
)
from leftoff.server.http.errors import BAD_REQUEST, PromptTooLongError, as_api_error
from leftoff.server.http.framing import NAMED_EVENTS, Pulse
from leftoff.server.reply.blocks import Block, Blocks, Closed, Grown, Opened, Step
from leftoff.server.reply.response import Whole
from leftoff.server.reply.stream import End, Event, Progress, ReplyStream

_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    503: "overloaded_error",
}


def error_body(error: Exception) -> ErrorBody:
    """An error in Anthropic's shape."""
    known = as_api_error(error)
    message = known.message
    if isinstance(known, PromptTooLongError):  # by these words agents know that it is time to shorten the conversation
        message = f"prompt is too long: {known.num_tokens} tokens > {known.context_tokens} maximum. {message}"
    return ErrorBody(ErrorDetails(_ERROR_TYPES.get(known.status, BAD_REQUEST), message))


@dataclass
class MessageWriter:
    """Writes one message. `kept` is the number of prompt tokens up to the last `cache_control` mark."""

    id: str
    model: str
    kept: int
    framing = NAMED_EVENTS
    last = b""
    shows_progress = True
    failure = staticmethod(error_body)
    _blocks: Blocks = field(default_factory=Blocks)
    _pulse: Pulse = field(default_factory=Pulse)
    _has_begun: bool = False
    _num_sent: int = 0  # content blocks
    _held: list[Struct] = field(default_factory=list)  # the events of a call that is not complete yet

    def whole(self, replies: Sequence[Whole]) -> OutputMessage:
        (reply,) = replies
        blocks = [block for block in Blocks.of(reply).all if block.kind != "call" or block.is_whole_call]
        stop = _stop(reply.end, blocks)
        content = [self._content(block, reply.stream) for block in blocks]
        usage = self._usage_of(reply.end)
        return OutputMessage(self.id, self.model, content, usage, "assistant", stop.stop_reason, stop.stop_sequence)

    def chunks(self, stream: ReplyStream, index: int, event: Event) -> Iterator[Struct]:  # noqa: ARG002
        if isinstance(event, Progress):
            yield from self._progress(event)
            return
        for step in self._blocks.take(event):
            yield from self._step(stream, step)
        if isinstance(event, End):
            yield MessageDelta(_stop(event, self._blocks.all), self._usage_of(event))
            yield MessageStop()

    def _progress(self, event: Progress) -> Iterator[Struct]:
        """Begin with the message and its usage: how much is reused is known before the prompt is read."""
        if not self._has_begun:
            self._has_begun = True
            yield MessageStart(OutputMessage(self.id, self.model, [], self._usage(event.total, event.reused, 0)))
            yield Ping()
        elif self._pulse.beats():
            yield Ping()

    def _step(self, stream: ReplyStream, step: Step) -> Iterator[Struct]:
        block, events = step.block, [*self._events(stream, step)]
        if block.kind != "call":
            yield from events
        elif not isinstance(step, Closed):
            self._held += events
            if self._pulse.beats():
                yield Ping()
        elif block.is_whole_call:
            yield from (*self._held, *events)
        if isinstance(step, Closed):
            self._num_sent += block.kind != "call" or block.is_whole_call
            self._held.clear()

    def _events(self, stream: ReplyStream, step: Step) -> Iterator[Struct]:
        block, index = step.block, self._num_sent
        match step:
            case Opened():
                yield BlockStart(index, self._content(block, stream))
            case Grown(_, text):
                yield BlockDelta(index, _delta(block, text))
            case Closed():
                if block.kind == "reasoning":
                    yield BlockDelta(index, SignatureDelta(self.id))
                yield BlockStop(index)

    def _content(self, block: Block, stream: ReplyStream) -> OutputBlock:
        match block.kind:
            case "text":
                return TextBlock(block.text)
            case "reasoning":
                return ThinkingBlock(block.text, self.id)
            case "call":
                return ToolUseBlock(stream.call_id(block.call), block.name, block.arguments)

    def _usage_of(self, end: End) -> Usage:
        report = end.report
        generated = end.timings.num_generated
        return self._usage(report.prompt_tokens, report.reused, generated) if report else Usage(0, 0, 0, generated)

    def _usage(self, total: int, reused: int, generated: int) -> Usage:
        kept = max(self.kept, reused)
        return Usage(total - kept, kept - reused, reused, generated)


def _stop(end: End, blocks: Sequence[Block]) -> StopDelta:
    if end.stop is not None:
        return StopDelta("stop_sequence", end.stop)
    if end.finish is Finish.LENGTH:
        return StopDelta("max_tokens", None)
    has_calls = any(block.is_whole_call for block in blocks)
    return StopDelta("tool_use" if has_calls else "end_turn", None)


def _delta(block: Block, text: str) -> TextDelta | ThinkingDelta | InputDelta:
    match block.kind:
        case "text":
            return TextDelta(text)
        case "reasoning":
            return ThinkingDelta(text)
        case "call":
            return InputDelta(text)
