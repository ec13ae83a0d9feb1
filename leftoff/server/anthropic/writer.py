"""Replies as Anthropic's messages: a list of content blocks, whole or event by event.

A tool call is sent once it is complete. One that was cut off is left out: clients run every call that they receive.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from leftoff.scheduler.job import Finish
from leftoff.server.anthropic import types as wire
from leftoff.server.http.errors import BAD_REQUEST, PromptTooLongError, as_api_error
from leftoff.server.reply.blocks import Block, Blocks, Closed, Grown, Opened, Step
from leftoff.server.reply.response import NAMED_EVENTS, Whole, Writer
from leftoff.server.reply.stream import End, Event, Progress, ReplyStream

_PINGS = 6  # of so many signs of life, the last is no ping
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
class MessageWriter(Writer):
    """Writes one message. `kept` is the number of prompt tokens up to the last `cache_control` mark."""

    id: str
    model: str
    kept: int
    framing = NAMED_EVENTS
    shows_progress = True
    failure = staticmethod(error_body)
    _blocks: Blocks = field(default_factory=Blocks)
    _has_begun: bool = False
    _num_sent: int = 0  # content blocks that were closed
    _open: Block | None = None  # the block that was opened on the wire: of the reply, or one that keeps the client
    _num_silent: int = 0
    _held: list[str] = field(default_factory=list)  # the arguments of a call that is not complete yet

    def whole(self, replies: Sequence[Whole]) -> wire.OutputMessage:
        (reply,) = replies
        blocks = [block for block in Blocks.of(reply).all if block.kind != "call" or block.is_whole_call]
        content = [self._content(block, reply.stream) for block in blocks]
        message = wire.OutputMessage(self.id, self.model, content, self._usage_of(reply.end))
        message.stop_reason, message.stop_sequence = _stop_reason(reply.end, blocks), reply.end.stop
        return message

    def chunks(self, stream: ReplyStream, index: int, event: Event) -> Iterator[wire.StreamEvent]:  # noqa: ARG002
        if isinstance(event, Progress):
            yield from self._begin(event.total, event.reused)
            return
        for step in self._blocks.take(event):
            yield from self._step(stream, step)
        if isinstance(event, End):
            yield from self._close()
            stop = wire.Delta(stop_reason=_stop_reason(event, self._blocks.all), stop_sequence=event.stop)
            yield wire.StreamEvent("message_delta", delta=stop, usage=self._usage_of(event))
            yield wire.StreamEvent("message_stop")

    def keep_alive(self, stream: ReplyStream) -> Iterator[wire.StreamEvent]:
        """A ping, and now and then an empty addition to a block: Claude Code takes no ping for a sign of life.

        After five minutes without such a sign it would ask again, without streaming. If no block is open, it is a block
        of reasoning: the reply goes on in that if it begins with reasoning, and clients pass over an empty one.
        """
        self._num_silent += 1
        if self._num_silent % _PINGS:
            yield wire.StreamEvent("ping")
            return
        yield from self._begin(stream.job.prompt.length, 0)
        if self._open is None:
            yield from self._start(stream, Block(0, "reasoning"))
        assert self._open is not None
        yield self._delta(_delta(self._open, ""))

    def _begin(self, total: int, reused: int) -> Iterator[wire.StreamEvent]:
        """Begin with the message and its usage: how much is reused is known before the prompt is read."""
        if not self._has_begun:
            self._has_begun = True
            message = wire.OutputMessage(self.id, self.model, [], self._usage(total, reused, 0))
            yield wire.StreamEvent("message_start", message=message)
            yield wire.StreamEvent("ping")

    def _step(self, stream: ReplyStream, step: Step) -> Iterator[wire.StreamEvent]:
        """The events of a change, at once; those of a call when it is complete."""
        block = step.block
        match step:
            case Opened() if block.kind != "call":
                yield from self._start(stream, block)
            case Grown(_, text) if block.kind != "call":
                yield self._delta(_delta(block, text))
            case Closed() if block.kind != "call":
                yield from self._close()
            case Opened():
                self._held = []
            case Grown(_, text):
                self._held.append(text)
            case Closed() if block.is_whole_call:
                yield from self._start(stream, Block(block.index, "call", block.call, block.name))
                yield from (self._delta(_delta(block, text)) for text in self._held)
                yield from self._close()

    def _start(self, stream: ReplyStream, block: Block) -> Iterator[wire.StreamEvent]:
        """Open a block. One of reasoning goes on in the empty one that was opened to keep the client."""
        goes_on = self._open is not None and self._open.kind == block.kind
        if not goes_on:
            yield from self._close()
            content = self._content(block, stream)
            yield wire.StreamEvent("content_block_start", self._num_sent, content_block=content)
        self._open = block

    def _delta(self, delta: wire.Delta) -> wire.StreamEvent:
        return wire.StreamEvent("content_block_delta", self._num_sent, delta=delta)

    def _close(self) -> Iterator[wire.StreamEvent]:
        """Close the open block, if there is one."""
        if self._open is None:
            return
        if self._open.kind == "reasoning":
            yield self._delta(wire.Delta("signature_delta", signature=self.id))
        yield wire.StreamEvent("content_block_stop", self._num_sent)
        self._open = None
        self._num_sent += 1

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
