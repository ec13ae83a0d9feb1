"""Replies as Ollama's objects: one for a whole reply, or one on each line of a stream.

A tool call is sent once it is complete; one that was cut off is left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from msgspec import UNSET

from leftoff.scheduler.job import Finish
from leftoff.server.http.errors import as_api_error
from leftoff.server.ollama.types import Call, Chunk, ErrorBody, Function, OutputMessage
from leftoff.server.reply.blocks import Block, Blocks, Closed, Grown
from leftoff.server.reply.response import LINES, Whole, Writer
from leftoff.server.reply.stream import End, Event, Progress, ReplyStream

_NANOSECONDS = 1_000_000  # in a millisecond


def error_body(error: Exception) -> ErrorBody:
    """An error in Ollama's shape."""
    return ErrorBody(as_api_error(error).message)


@dataclass
class OllamaWriter(Writer):
    """Writes replies to /api/chat, or, unless `is_chat`, to /api/generate."""

    model: str
    is_chat: bool
    framing = LINES
    failure = staticmethod(error_body)
    _blocks: Blocks = field(default_factory=Blocks)

    def whole(self, replies: Sequence[Whole]) -> Chunk:
        (reply,) = replies
        blocks = Blocks.of(reply)
        calls = [_call(block, reply.stream) for block in blocks.all if block.is_whole_call]
        return self.chunk(blocks.text("text"), blocks.text("reasoning"), calls, **_cost(reply.end))

    def chunks(self, stream: ReplyStream, index: int, event: Event) -> Iterator[Chunk]:  # noqa: ARG002
        if isinstance(event, Progress):
            return
        for step in self._blocks.take(event):
            match step:
                case Grown(Block(kind="text"), text):
                    yield self.chunk(text)
                case Grown(Block(kind="reasoning"), text):
                    yield self.chunk(thinking=text)
                case Closed(block) if block.is_whole_call:
                    yield self.chunk(calls=[_call(block, stream)])
        if isinstance(event, End):
            yield self.chunk(**_cost(event))

    def keep_alive(self, stream: ReplyStream) -> Iterator[Chunk]:  # noqa: ARG002
        """A chunk without words: a stream of lines has no comments."""
        yield self.chunk()

    def chunk(self, text: str = "", thinking: str = "", calls: Sequence[Call] = (), **cost: Any) -> Chunk:  # noqa: ANN401
        """A whole reply or a part of it. `cost` comes with the last part: why the reply ended, counts and times."""
        chunk = Chunk(model=self.model, created_at=datetime.now(UTC), done=bool(cost), **cost)
        if self.is_chat:
            chunk.message = OutputMessage(text, thinking=thinking or UNSET, tool_calls=[*calls] or UNSET)
        else:
            chunk.response, chunk.thinking = text, thinking or UNSET
        return chunk


def _cost(end: End) -> dict[str, Any]:
    timings, report = end.timings, end.report
    prompt_ms, generation_ms = timings.prompt_ms, timings.generation_ms
    return {
        "done_reason": "length" if end.finish is Finish.LENGTH else "stop",
        "total_duration": round((timings.waited_ms + prompt_ms + generation_ms) * _NANOSECONDS),
        "load_duration": 0,
        "prompt_eval_count": report.prompt_tokens if report else 0,
        "prompt_eval_duration": round(prompt_ms * _NANOSECONDS),
        "eval_count": timings.num_generated,
        "eval_duration": round(generation_ms * _NANOSECONDS),
    }


def _call(block: Block, stream: ReplyStream) -> Call:
    return Call(Function(block.name, block.arguments), stream.call_id(block.call))
