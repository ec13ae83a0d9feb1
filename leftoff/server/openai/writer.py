"""Replies in OpenAI's words: whole, and chunk by chunk."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from leftoff.chat.formats.parts import CallArguments, CallStart, Content, Part, Reasoning
from leftoff.engine.vocabulary import Vocabulary
from leftoff.scheduler.job import Finish
from leftoff.server.http.errors import error_body
from leftoff.server.http.framing import EVENTS
from leftoff.server.openai.types import (
    CallDelta,
    ChatChoice,
    ChatChunk,
    ChatCompletion,
    ChatLogprobs,
    ChunkChoice,
    Completion,
    Delta,
    FinishReason,
    FunctionDelta,
    MadeCall,
    MadeFunction,
    ReplyMessage,
    TextChoice,
    TextLogprobs,
)
from leftoff.server.reply.logprobs import token_logprobs
from leftoff.server.reply.response import Whole
from leftoff.server.reply.stream import End, Event, Piece, Progress, ReplyStream
from leftoff.server.reply.usage import PromptProgress, WireTimings, progress_of, timings_of, timings_so_far, usage_of

DONE = b"data: [DONE]\n\n"

Chunk = TypeVar("Chunk", ChatChunk, Completion)


@dataclass(frozen=True)
class Head:
    """What all chunks of one answer share, and what was asked of it."""

    id: str
    created: int
    model: str
    fingerprint: str
    vocabulary: Vocabulary
    num_each: int
    num_replies: int
    includes_usage: bool
    shows_progress: bool
    times_tokens: bool

    def timings(self, stream: ReplyStream) -> WireTimings | UnsetType:
        return timings_so_far(stream) if self.times_tokens else UNSET


@dataclass
class ChatWriter:
    head: Head
    framing = EVENTS
    last = DONE
    failure = staticmethod(error_body)
    _begun: set[int] = field(default_factory=set)
    _ends: dict[int, End] = field(default_factory=dict)

    def whole(self, replies: Sequence[Whole]) -> ChatCompletion:
        head, ends = self.head, [reply.end for reply in replies]
        return ChatCompletion(
            head.id,
            head.created,
            head.model,
            head.fingerprint,
            [self._choice(index, reply) for index, reply in enumerate(replies)],
            usage_of(ends, head.num_each),
            timings_of(ends, head.num_each),
        )

    def chunks(self, stream: ReplyStream, index: int, event: Event) -> Iterator[Struct]:
        if isinstance(event, Progress):
            if self.head.shows_progress:
                yield self._chunk(ChunkChoice(index, self._first_delta(index)), progress=progress_of(event))
            return
        if index not in self._begun:
            yield self._chunk(ChunkChoice(index, self._first_delta(index)))
        logprobs = self._logprobs([event]) if isinstance(event, Piece) else None
        parts = event.parts or ((Content(""),) if logprobs else ())
        for part in parts:
            choice = ChunkChoice(index, delta_of(part, stream), None, logprobs)
            yield self._chunk(choice, timings=self.head.timings(stream))
            logprobs = None  # with the first of them
        if isinstance(event, End):
            self._ends[index] = event
            yield from closing(self.head, self._ends, self._chunk(ChunkChoice(index, Delta(), finish_reason(event))))

    def _first_delta(self, index: int) -> Delta:
        self._begun.add(index)
        return Delta("assistant", "")

    def _chunk(
        self,
        *choices: ChunkChoice,
        timings: WireTimings | UnsetType = UNSET,
        progress: PromptProgress | UnsetType = UNSET,
    ) -> ChatChunk:
        head = self.head
        chunk = ChatChunk(head.id, head.created, head.model, head.fingerprint, list(choices))
        chunk.timings, chunk.prompt_progress = timings, progress
        return chunk

    def _choice(self, index: int, reply: Whole) -> ChatChoice:
        logprobs = self._logprobs(reply.pieces)
        return ChatChoice(index, message_of(reply), finish_reason(reply.end), logprobs)

    def _logprobs(self, pieces: Sequence[Piece]) -> ChatLogprobs | None:
        content = token_logprobs(pieces, self.head.vocabulary)
        return ChatLogprobs(content) if content else None


@dataclass
class TextWriter:
    """`echoes` is what comes before each reply."""

    head: Head
    echoes: Sequence[str]
    framing = EVENTS
    last = DONE
    failure = staticmethod(error_body)
    _offsets: dict[int, int] = field(default_factory=dict)
    _ends: dict[int, End] = field(default_factory=dict)

    def whole(self, replies: Sequence[Whole]) -> Completion:
        ends = [reply.end for reply in replies]
        answer = self._chunk(*(self._choice(index, reply) for index, reply in enumerate(replies)))
        answer.usage = usage_of(ends, self.head.num_each)
        answer.timings = timings_of(ends, self.head.num_each)
        return answer

    def chunks(self, stream: ReplyStream, index: int, event: Event) -> Iterator[Struct]:
        if isinstance(event, Progress):
            if self.head.shows_progress:
                chunk = self._chunk(TextChoice(index, ""))
                chunk.prompt_progress = progress_of(event)
                yield chunk
            return
        text = self._echo(index) + event.text
        logprobs = self._logprobs(index, [event]) if isinstance(event, Piece) else None
        if text or logprobs:
            chunk = self._chunk(TextChoice(index, text, None, logprobs))
            chunk.timings = self.head.timings(stream)
            yield chunk
        if isinstance(event, End):
            self._ends[index] = event
            yield from closing(self.head, self._ends, self._chunk(TextChoice(index, "", finish_reason(event))))

    def _echo(self, index: int) -> str:
        """Once, before the first words."""
        if index in self._offsets:
            return ""
        self._offsets[index] = len(self.echoes[index])
        return self.echoes[index]

    def _choice(self, index: int, reply: Whole) -> TextChoice:
        text = self._echo(index) + reply.text
        return TextChoice(index, text, finish_reason(reply.end), self._logprobs(index, reply.pieces))

    def _logprobs(self, index: int, pieces: Sequence[Piece]) -> TextLogprobs | None:
        content = token_logprobs(pieces, self.head.vocabulary)
        if not content:
            return None
        offsets = []
        for token in content:
            offsets.append(self._offsets[index])
            self._offsets[index] += len(token.token)
        return TextLogprobs(
            [token.token for token in content],
            [token.logprob for token in content],
            [{top.token: top.logprob for top in token.top_logprobs} for token in content],
            offsets,
        )

    def _chunk(self, *choices: TextChoice) -> Completion:
        head = self.head
        return Completion(head.id, head.created, head.model, head.fingerprint, list(choices))


def closing(head: Head, ends: dict[int, End], chunk: Chunk) -> Iterator[Chunk]:
    """The chunk that says why a reply ended; after the last of them, what all of it cost."""
    if len(ends) < head.num_replies:
        yield chunk
        return
    in_order = [ends[index] for index in sorted(ends)]
    if head.includes_usage:
        yield chunk
        chunk = replace(chunk, choices=[], usage=usage_of(in_order, head.num_each))
    chunk.timings = timings_of(in_order, head.num_each)
    yield chunk


def message_of(reply: Whole) -> ReplyMessage:
    said = reply.said
    message = ReplyMessage(said.content or (None if said.calls else ""))
    if said.reasoning:
        message.reasoning_content = said.reasoning
    if said.calls:
        message.tool_calls = [
            MadeCall(reply.stream.call_id(index), MadeFunction(call.name, call.arguments))
            for index, call in enumerate(said.calls)
        ]
    return message


def delta_of(part: Part, stream: ReplyStream) -> Delta:
    match part:
        case Content(text):
            return Delta(content=text)
        case Reasoning(text):
            return Delta(reasoning_content=text)
        case CallStart(index, name):
            start = CallDelta(index, FunctionDelta(name), stream.call_id(index), "function")
            return Delta(tool_calls=[start])
        case CallArguments(index, text):
            return Delta(tool_calls=[CallDelta(index, FunctionDelta(arguments=text))])


def finish_reason(end: End) -> FinishReason:
    """A reply that was cut off may have half a call, which nobody should make."""
    if end.finish is Finish.LENGTH:
        return "length"
    return "tool_calls" if end.num_calls and not end.has_half_call else "stop"
