"""Replies in Ollama's words: one JSON object, or one a line. Calls come whole: one that was cut off is left out."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from msgspec import UNSET, Struct

from leftoff.scheduler.job import Finish
from leftoff.server.http.errors import as_api_error
from leftoff.server.http.framing import LINES
from leftoff.server.ollama.types import Call, ChatChunk, ErrorBody, Function, GenerateChunk, OutputMessage
from leftoff.server.reply.blocks import Block, Blocks, Closed, Grown
from leftoff.server.reply.response import Whole
from leftoff.server.reply.stream import End, Event, Progress, ReplyStream

_NANOSECONDS = 1_000_000  # in a millisecond


def error_body(error: Exception) -> ErrorBody:
    """An error in Ollama's shape."""
    return ErrorBody(as_api_error(error).message)


@dataclass(frozen=True)
class Words:
    """What a chunk has to say."""

    content: str = ""
    thinking: str = ""
    calls: Sequence[Call] = ()


Shape = Callable[[str, Words, dict[str, Any] | None], Struct]


@dataclass
class OllamaWriter:
    """`shape` makes a chunk: `chat_chunk`, or `generate_chunk`."""

    model: str
    shape: Shape
    framing = LINES
    last = b""
    shows_progress = False
    failure = staticmethod(error_body)
    _blocks: Blocks = field(default_factory=Blocks)

    def whole(self, replies: Sequence[Whole]) -> Struct:
        (reply,) = replies
        blocks = Blocks.of(reply)
        calls = [_call(block, reply.stream) for block in blocks.all if block.is_whole_call]
        words = Words(blocks.text("text"), blocks.text("reasoning"), calls)
        return self.shape(self.model, words, _tally(reply.end))

    def chunks(self, stream: ReplyStream, index: int, event: Event) -> Iterator[Struct]:  # noqa: ARG002
        if isinstance(event, Progress):
            return
        for step in self._blocks.take(event):
            match step:
                case Grown(Block(kind="text"), text):
                    yield self.shape(self.model, Words(text), None)
                case Grown(Block(kind="reasoning"), text):
                    yield self.shape(self.model, Words(thinking=text), None)
                case Closed(block) if block.is_whole_call:
                    yield self.shape(self.model, Words(calls=[_call(block, stream)]), None)
        if isinstance(event, End):
            yield self.shape(self.model, Words(), _tally(event))


def chat_chunk(model: str, words: Words, tally: dict[str, Any] | None) -> ChatChunk:
    """`tally` comes with the last one."""
    message = OutputMessage(words.content, thinking=words.thinking or UNSET, tool_calls=list(words.calls) or UNSET)
    return ChatChunk(model=model, created_at=_now(), message=message, done=tally is not None, **(tally or {}))


def generate_chunk(model: str, words: Words, tally: dict[str, Any] | None) -> GenerateChunk:
    chunk = GenerateChunk(
        model=model, created_at=_now(), response=words.content, done=tally is not None, **(tally or {})
    )
    chunk.thinking = words.thinking or UNSET
    return chunk


def loaded(*, unloads: bool) -> dict[str, Any]:
    """The tally of a request that asks for nothing but the model, or to be rid of it."""
    return {"done_reason": "unload" if unloads else "load"}


def _tally(end: End) -> dict[str, Any]:
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


def _now() -> datetime:
    return datetime.now(UTC)
