"""Replies as Anthropic's messages: a list of content blocks, whole or event by event.

A tool call is sent once it is complete. One that was cut off is left out: clients run every call that they receive.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from leftoff.scheduler.job import Finish
from leftoff.server.anthropic.types import ErrorBody, ErrorDetails
from leftoff.server.http.errors import BAD_REQUEST, PromptTooLongError, as_api_error
from leftoff.server.reply.blocks import Block, Blocks, Step
from leftoff.server.reply.response import NAMED_EVENTS, Json, Writer
from leftoff.server.reply.stream import End, Event, Progress, ReplyStream

_PINGS = 6  # every sixth sign of life is more than a ping
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


def _failure(error: Exception) -> Json:
    """An error as an event of a stream."""
    return {"error": msgspec.to_builtins(error_body(error).error), "type": "error"}


_PING = {"type": "ping"}
STREAM = replace(NAMED_EVENTS, failure=_failure, nothing=NAMED_EVENTS.frame(_PING))


@dataclass
class MessageWriter(Writer):
    """Writes one message. `kept` is the number of prompt tokens up to the last `cache_control` mark."""

    id: str
    model: str
    kept: int
    framing = STREAM
    shows_progress = True
    _blocks: Blocks = field(default_factory=Blocks)
    _has_begun: bool = False
    _num_sent: int = 0  # content blocks that were closed
    _open: Block | None = None  # the block that was opened on the wire: of the reply, or one that keeps the client
    _num_silent: int = 0
    _held: list[str] = field(default_factory=list)  # the arguments of a call that is not complete yet

    def whole(self, replies: Sequence[ReplyStream]) -> Json:
        (reply,) = replies
        blocks = [block for block in Blocks.of(reply).all if block.kind != "call" or block.is_whole_call]
        content = [self._content(block, reply) for block in blocks]
        return self._message(content, self._usage_of(reply)) | _stop(reply, blocks)

    def chunks(self, stream: ReplyStream, event: Event) -> Iterator[Json]:
        if isinstance(event, Progress):
            yield from self._begin(event.total, event.reused)
            return
        for step in self._blocks.take(event):
            yield from self._step(stream, step)
        if isinstance(event, End):
            yield from self._close()
            stop = _stop(stream, self._blocks.all)
            yield {"type": "message_delta", "delta": stop, "usage": self._usage_of(stream)}
            yield {"type": "message_stop"}

    def keep_alive(self, stream: ReplyStream) -> Iterator[Json]:
        """A ping, and now and then an empty addition to a block: Claude Code takes no ping for a sign of life.

        After five minutes without such a sign it would ask again, without streaming. If no block is open, it is a block
        of reasoning: the reply goes on in that if it begins with reasoning, and clients pass over an empty one.
        """
        self._num_silent += 1
        if self._num_silent % _PINGS:
            yield _PING
            return
        yield from self._begin(stream.job.prompt.length, 0)
        if self._open is None:
            yield from self._start(stream, Block(0, "reasoning"))
        assert self._open is not None
        yield self._grown(_delta(self._open, ""))

    def _begin(self, total: int, reused: int) -> Iterator[Json]:
        """Begin with the message and its usage: how much is reused is known before the prompt is read."""
        if not self._has_begun:
            self._has_begun = True
            message = self._message([], self._usage(total, reused, 0))
            yield {"type": "message_start", "message": message}
            yield _PING

    def _message(self, content: list[Json], usage: Json) -> Json:
        return {
            "type": "message",
            "id": self.id,
            "model": self.model,
            "content": content,
            "usage": usage,
            "role": "assistant",
            "stop_reason": None,
            "stop_sequence": None,
        }

    def _step(self, stream: ReplyStream, step: Step) -> Iterator[Json]:
        """The events of a change, at once; those of a call when it is complete."""
        block = step.block
        match step.change:
            case "opened" if block.kind != "call":
                yield from self._start(stream, block)
            case "grown" if block.kind != "call":
                yield self._grown(_delta(block, step.text))
            case "closed" if block.kind != "call":
                yield from self._close()
            case "opened":
                self._held = []
            case "grown":
                self._held.append(step.text)
            case "closed" if block.is_whole_call:
                yield from self._start(stream, Block(block.index, "call", block.call, block.name))
                yield from (self._grown(_delta(block, text)) for text in self._held)
                yield from self._close()

    def _start(self, stream: ReplyStream, block: Block) -> Iterator[Json]:
        """Open a block. One of reasoning goes on in the empty one that was opened to keep the client."""
        goes_on = self._open is not None and self._open.kind == block.kind
        if not goes_on:
            yield from self._close()
            content = self._content(block, stream)
            yield {"type": "content_block_start", "index": self._num_sent, "content_block": content}
        self._open = block

    def _grown(self, delta: Json) -> Json:
        return {"type": "content_block_delta", "index": self._num_sent, "delta": delta}

    def _close(self) -> Iterator[Json]:
        """Close the open block, if there is one."""
        if self._open is None:
            return
        if self._open.kind == "reasoning":
            yield self._grown({"type": "signature_delta", "signature": self.id})
        yield {"type": "content_block_stop", "index": self._num_sent}
        self._open = None
        self._num_sent += 1

    def _content(self, block: Block, stream: ReplyStream) -> Json:
        match block.kind:
            case "text":
                return {"type": "text", "text": block.text}
            case "reasoning":
                return {"type": "thinking", "thinking": block.text, "signature": self.id}
            case "call":
                call_id = stream.call_id(block.call)
                return {"type": "tool_use", "id": call_id, "name": block.name, "input": block.arguments}

    def _usage_of(self, reply: ReplyStream) -> Json:
        return self._usage(reply.report.prompt_tokens, reply.report.reused, reply.timings.num_generated)

    def _usage(self, total: int, reused: int, generated: int) -> Json:
        """The prompt in three parts: [0 ·· cache_read ·· )[ ·· cache_creation ·· last mark)[ ·· input ·· )."""
        kept = min(max(self.kept, reused), total)
        return {
            "input_tokens": total - kept,
            "cache_creation_input_tokens": kept - reused,
            "cache_read_input_tokens": reused,
            "output_tokens": generated,
        }


def _stop(reply: ReplyStream, blocks: Sequence[Block]) -> Json:
    """Why the message ended."""
    reason = "tool_use" if any(block.is_whole_call for block in blocks) else "end_turn"
    if reply.end.finish is Finish.LENGTH:
        reason = "max_tokens"
    if reply.stop is not None:
        reason = "stop_sequence"
    return {"stop_reason": reason, "stop_sequence": reply.stop}


def _delta(block: Block, text: str) -> Json:
    match block.kind:
        case "text":
            return {"type": "text_delta", "text": text}
        case "reasoning":
            return {"type": "thinking_delta", "thinking": text}
        case "call":
            return {"type": "input_json_delta", "partial_json": text}
