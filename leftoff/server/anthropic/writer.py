"""Replies in Anthropic's words: blocks, at once or one event after the other."""

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
    """`kept` is how much of the prompt stands before the client's last mark."""

    id: str
    model: str
    kept: int
    framing = NAMED_EVENTS
    last = b""
    failure = staticmethod(error_body)
    _blocks: Blocks = field(default_factory=Blocks)
    _pulse: Pulse | None = None

    def whole(self, replies: Sequence[Whole]) -> OutputMessage:
        (reply,) = replies
        stop = stop_of(reply.end)
        content = [self._content(block, reply.stream) for block in Blocks.of(reply).all]
        usage = self._usage_of(reply.end)
        return OutputMessage(self.id, self.model, content, usage, "assistant", stop.stop_reason, stop.stop_sequence)

    def chunks(self, stream: ReplyStream, index: int, event: Event) -> Iterator[Struct]:  # noqa: ARG002
        if isinstance(event, Progress):
            yield from self._progress(event)
            return
        for step in self._blocks.take(event):
            yield from self._step(stream, step)
        if isinstance(event, End):
            yield MessageDelta(stop_of(event), self._usage_of(event))
            yield MessageStop()

    def _progress(self, event: Progress) -> Iterator[Struct]:
        """What was reused is known before anything is read."""
        if self._pulse is None:
            self._pulse = Pulse()
            yield MessageStart(OutputMessage(self.id, self.model, [], self._usage(event.total, event.reused, 0)))
            yield Ping()
        elif self._pulse.beats():
            yield Ping()

    def _step(self, stream: ReplyStream, step: Step) -> Iterator[Struct]:
        block = step.block
        match step:
            case Opened():
                yield BlockStart(block.index, self._content(block, stream))
            case Grown(_, text):
                yield BlockDelta(block.index, _delta(block, text))
            case Closed():
                if block.kind == "reasoning":
                    yield BlockDelta(block.index, SignatureDelta(self.id))
                yield BlockStop(block.index)

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


def stop_of(end: End) -> StopDelta:
    if end.stop is not None:
        return StopDelta("stop_sequence", end.stop)
    if end.finish is Finish.LENGTH:
        return StopDelta("max_tokens", None)
    return StopDelta("tool_use" if end.num_calls else "end_turn", None)


def _delta(block: Block, text: str) -> TextDelta | ThinkingDelta | InputDelta:
    match block.kind:
        case "text":
            return TextDelta(text)
        case "reasoning":
            return ThinkingDelta(text)
        case "call":
            return InputDelta(text)
