"""Replies as Anthropic's messages: a list of content blocks, whole or event by event.

A tool call is sent once it is complete. One that was cut off is left out: clients run every call that they receive.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from leftoff.scheduler.job import Finish
from leftoff.server.anthropic import types as wire
from leftoff.server.http.errors import BAD_REQUEST, PromptTooLongError, as_api_error
from leftoff.server.reply.blocks import Block, Blocks, Closed, Grown, Opened, Step
from leftoff.server.reply.response import NAMED_EVENTS, Pulse, Whole
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


def error_body(error: Exception) -> wire.ErrorBody:
    """An error in Anthropic's shape."""
    known = as_api_error(error)
    message = known.message
    if isinstance(known, PromptTooLongError):  # by these words agents know that it is time to shorten the conversation
        message = f"prompt is too long: {known.num_tokens} tokens > {known.context_tokens} maximum. {message}"
    return wire.ErrorBody(wire.ErrorDetails(_ERROR_TYPES.get(known.status, BAD_REQUEST), message))


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
    _held: list[wire.StreamEvent] = field(default_factory=list)  # the events of a call that is not complete yet

    def whole(self, replies: Sequence[Whole]) -> wire.OutputMessage:
        (reply,) = replies
        blocks = [block for block in Blocks.of(reply).all if block.kind != "call" or block.is_whole_call]
        content = [self._content(block, reply.stream) for block in blocks]
        message = wire.OutputMessage(self.id, self.model, content, self._usage_of(reply.end))
        message.stop_reason, message.stop_sequence = _stop_reason(reply.end, blocks), reply.end.stop
        return message

    def chunks(self, stream: ReplyStream, index: int, event: Event) -> Iterator[wire.StreamEvent]:  # noqa: ARG002
        if isinstance(event, Progress):
            yield from self._progress(event)
            return
        for step in self._blocks.take(event):
            yield from self._step(stream, step)
        if isinstance(event, End):
            stop = wire.Delta(stop_reason=_stop_reason(event, self._blocks.all), stop_sequence=event.stop)
            yield wire.StreamEvent("message_delta", delta=stop, usage=self._usage_of(event))
            yield wire.StreamEvent("message_stop")

    def _progress(self, event: Progress) -> Iterator[wire.StreamEvent]:
        """Begin with the message and its usage: how much is reused is known before the prompt is read."""
        if not self._has_begun:
            self._has_begun = True
            message = wire.OutputMessage(self.id, self.model, [], self._usage(event.total, event.reused, 0))
            yield wire.StreamEvent("message_start", message=message)
            yield wire.StreamEvent("ping")
        elif self._pulse.beats():
            yield wire.StreamEvent("ping")

    def _step(self, stream: ReplyStream, step: Step) -> Iterator[wire.StreamEvent]:
        """The events of a change, at once; those of a call when it is complete, with pings meanwhile."""
        block, events = step.block, [*self._events(stream, step)]
        if block.kind != "call":
            yield from events
        elif not isinstance(step, Closed):
            self._held += events
            if self._pulse.beats():
                yield wire.StreamEvent("ping")
        elif block.is_whole_call:
            yield from (*self._held, *events)
        if isinstance(step, Closed):
            self._num_sent += block.kind != "call" or block.is_whole_call
            self._held.clear()

    def _events(self, stream: ReplyStream, step: Step) -> Iterator[wire.StreamEvent]:
        block, index = step.block, self._num_sent
        match step:
            case Opened():
                yield wire.StreamEvent("content_block_start", index, content_block=self._content(block, stream))
            case Grown(_, text):
                yield wire.StreamEvent("content_block_delta", index, delta=_delta(block, text))
            case Closed():
                if block.kind == "reasoning":
                    signature = wire.Delta("signature_delta", signature=self.id)
                    yield wire.StreamEvent("content_block_delta", index, delta=signature)
                yield wire.StreamEvent("content_block_stop", index)

    def _content(self, block: Block, stream: ReplyStream) -> wire.OutputBlock:
        match block.kind:
            case "text":
                return wire.TextBlock(block.text)
            case "reasoning":
                return wire.ThinkingBlock(block.text, self.id)
            case "call":
                return wire.ToolUseBlock(stream.call_id(block.call), block.name, block.arguments)

    def _usage_of(self, end: End) -> wire.Usage:
        report = end.report
        generated = end.timings.num_generated
        return self._usage(report.prompt_tokens, report.reused, generated) if report else wire.Usage(0, 0, 0, generated)

    def _usage(self, total: int, reused: int, generated: int) -> wire.Usage:
        kept = max(self.kept, reused)
        return wire.Usage(total - kept, kept - reused, reused, generated)


def _stop_reason(end: End, blocks: Sequence[Block]) -> wire.StopReason:
    if end.stop is not None:
        return "stop_sequence"
    if end.finish is Finish.LENGTH:
        return "max_tokens"
    return "tool_use" if any(block.is_whole_call for block in blocks) else "end_turn"


def _delta(block: Block, text: str) -> wire.Delta:
    match block.kind:
        case "text":
            return wire.Delta("text_delta", text=text)
        case "reasoning":
            return wire.Delta("thinking_delta", thinking=text)
        case "call":
            return wire.Delta("input_json_delta", partial_json=text)
