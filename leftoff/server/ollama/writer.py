"""Replies as Ollama's objects: one for a whole reply, or one on each line of a stream.

A tool call is sent once it is complete; one that was cut off is left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from leftoff.scheduler.job import Finish
from leftoff.server.http.errors import as_api_error
from leftoff.server.ollama.types import ErrorBody
from leftoff.server.reply.blocks import Block, Blocks
from leftoff.server.reply.response import LINES, Json, Writer
from leftoff.server.reply.stream import End, Event, Progress, ReplyStream

_NANOSECONDS = 1_000_000  # in a millisecond


def error_body(error: Exception) -> ErrorBody:
    """An error in Ollama's shape."""
    return ErrorBody(as_api_error(error).message)


STREAM = replace(LINES, failure=error_body)


@dataclass
class OllamaWriter(Writer):
    """Writes replies to /api/chat, or, unless `is_chat`, to /api/generate."""

    model: str
    is_chat: bool
    framing = STREAM
    _blocks: Blocks = field(default_factory=Blocks)

    def whole(self, replies: Sequence[ReplyStream]) -> Json:
        (reply,) = replies
        blocks = Blocks.of(reply)
        calls = [_call(block, reply) for block in blocks.all if block.is_whole_call]
        return self.chunk(blocks.text("text"), blocks.text("reasoning"), calls, _cost(reply))

    def chunks(self, stream: ReplyStream, event: Event) -> Iterator[Json]:
        if isinstance(event, Progress):
            return
        for change, block, text in self._blocks.take(event):
            match change, block.kind:
                case "grown", "text":
                    yield self.chunk(text)
                case "grown", "reasoning":
                    yield self.chunk(thinking=text)
                case "closed", _ if block.is_whole_call:
                    yield self.chunk(calls=[_call(block, stream)])
        if isinstance(event, End):
            yield self.chunk(end=_cost(stream))

    def keep_alive(self, stream: ReplyStream) -> Iterator[Json]:  # noqa: ARG002
        """A chunk without words: a stream of lines has no comments."""
        yield self.chunk()

    def chunk(self, text: str = "", thinking: str = "", calls: Sequence[Json] = (), end: Json | None = None) -> Json:
        """A whole reply or a part of it. `end` comes with the last part: why the reply ended, counts and times."""
        thoughts = {"thinking": thinking} if thinking else {}
        if self.is_chat:
            called = {"tool_calls": calls} if calls else {}
            said: Json = {"message": {"content": text, "role": "assistant", **thoughts, **called}}
        else:
            said = {"response": text, **thoughts}
        return {"model": self.model, "created_at": datetime.now(UTC), "done": bool(end), **said, **(end or {})}


def _cost(reply: ReplyStream) -> Json:
    """Why a reply ended, its tokens, and its times in nanoseconds."""
    timings = reply.timings
    prompt_ms, generation_ms = timings.prompt_ms, timings.generation_ms
    return {
        "done_reason": "length" if reply.end.finish is Finish.LENGTH else "stop",
        "total_duration": round((timings.waited_ms + prompt_ms + generation_ms) * _NANOSECONDS),
        # as Ollama counts it: with the time in which other models kept this one from being loaded
        "load_duration": round(timings.waited_ms * _NANOSECONDS) if timings.waited_for else 0,
        "prompt_eval_count": reply.report.prompt_tokens,
        "prompt_eval_duration": round(prompt_ms * _NANOSECONDS),
        "eval_count": timings.num_generated,
        "eval_duration": round(generation_ms * _NANOSECONDS),
    }


def _call(block: Block, stream: ReplyStream) -> Json:
    return {"function": {"name": block.name, "arguments": block.arguments}, "id": stream.call_id(block.call)}
