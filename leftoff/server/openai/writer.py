"""Replies as OpenAI's chat completions and completions: whole, and chunk by chunk."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from msgspec import UNSET, UnsetType

from leftoff.chat.formats.parts import CallArguments, CallStart, Content, Part, Reasoning
from leftoff.engine.vocabulary import Vocabulary
from leftoff.scheduler.job import Finish
from leftoff.server.http.errors import error_body
from leftoff.server.openai import types as wire
from leftoff.server.reply.response import EVENTS, Whole, Writer
from leftoff.server.reply.stream import End, Event, Piece, Progress, ReplyStream
from leftoff.server.reply.usage import (
    PromptChances,
    PromptProgress,
    progress_of,
    timings_of,
    timings_so_far,
    token_logprobs,
    usage_of,
    usage_so_far,
)
from leftoff.server.request.fields import ChatRequest


@dataclass(frozen=True)
class Head:
    """The fields that all chunks of one answer share, and the request."""

    id: str
    created: int
    model: str
    fingerprint: str
    vocabulary: Vocabulary
    body: ChatRequest | wire.CompletionRequest
    num_replies: int

    @property
    def num_each(self) -> int:
        """Replies to each prompt."""
        return self.body.n or 1


@dataclass
class _CompletionWriter(Writer):
    """Common to chats and texts: the envelope around the choices, and the chunks that end a stream."""

    head: Head
    framing = EVENTS
    last = b"data: [DONE]\n\n"
    failure = staticmethod(error_body)
    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]
    _ends: dict[int, End] = field(default_factory=dict, init=False)

    @property
    def shows_progress(self) -> bool:
        return bool(self.head.body.return_progress)

    def whole(self, replies: Sequence[Whole]) -> wire.Completion:
        choices = [self._choice(index, reply) for index, reply in enumerate(replies)]
        return self._with_cost(self._envelope(self.whole_object, choices), [reply.end for reply in replies])

    @abstractmethod
    def _choice(self, index: int, reply: Whole) -> wire.ChatChoice | wire.TextChoice: ...

    def _chunk(
        self,
        choice: wire.ChatChoice | wire.TextChoice,
        stream: ReplyStream | None = None,
        progress: PromptProgress | UnsetType = UNSET,
    ) -> wire.Completion:
        """With `stream`, what its reply has cost so far, if the request wants that in every chunk."""
        chunk = self._envelope(self.chunk_object, [choice])
        chunk.prompt_progress = progress
        body = self.head.body
        if stream and body.timings_per_token:
            chunk.timings = timings_so_far(stream)
        if stream and body.stream_options and body.stream_options.is_usage_continuous:
            chunk.usage = usage_so_far(stream)
        return chunk

    def _closing(self, end: End, choice: wire.ChatChoice | wire.TextChoice) -> Iterator[wire.Completion]:
        """The chunk with the finish reason of one reply. The last chunk of all has the timings, and usage if asked."""
        self._ends[choice.index] = end
        chunk = self._chunk(choice)
        if len(self._ends) < self.head.num_replies:
            yield chunk
            return
        ends = [self._ends[index] for index in sorted(self._ends)]
        options = self.head.body.stream_options
        if options and options.include_usage:
            yield chunk
            yield self._with_cost(self._envelope(self.chunk_object, []), ends)
        else:
            chunk.timings = timings_of(ends, self.head.num_each)
            yield chunk

    def _envelope(self, name: str, choices: Sequence[wire.ChatChoice | wire.TextChoice]) -> wire.Completion:
        head = self.head
        return wire.Completion(head.id, name, head.created, head.model, head.fingerprint, choices)

    def _with_cost(self, answer: wire.Completion, ends: Sequence[End]) -> wire.Completion:
        answer.usage = usage_of(ends, self.head.num_each)
        answer.timings = timings_of(ends, self.head.num_each)
        return answer


@dataclass
class ChatWriter(_CompletionWriter):
    """Writes chat completions: content, reasoning and tool calls apart."""

    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"
    _begun: set[int] = field(default_factory=set, init=False)
    _answered: set[int] = field(default_factory=set, init=False)  # those with content or calls

    def chunks(self, stream: ReplyStream, index: int, event: Event) -> Iterator[wire.Completion]:
        if isinstance(event, Progress):
            yield self._chunk(self._first(index, None), progress=progress_of(event))
            return
        logprobs = self._logprobs([event]) if isinstance(event, Piece) and event.chosen else None
        parts: Sequence[Part | None] = event.parts or ((None,) if logprobs else ())
        if parts and index not in self._begun:
            yield self._chunk(self._first(index, parts[0]))
        for part in parts:
            self._answered |= {index} if isinstance(part, Content | CallStart) else set()
            yield self._chunk(wire.ChatChoice(index, None, logprobs, delta=_delta(part, stream)), stream)
            logprobs = None  # they come with the first part of a token
        if isinstance(event, End):
            yield from self._closing(event, wire.ChatChoice(index, finish_reason(event), delta=self._last(index)))

    def _first(self, index: int, part: Part | None) -> wire.ChatChoice:
        """As in a whole reply, `content` is null unless there is some."""
        self._begun.add(index)
        return wire.ChatChoice(index, delta=wire.Message("assistant", "" if isinstance(part, Content) else None))

    def _last(self, index: int) -> wire.Message:
        """A reply of neither content nor calls has an empty text as `content`."""
        role = UNSET if index in self._begun else "assistant"
        return wire.Message(role, UNSET if index in self._answered else "")

    def _choice(self, index: int, reply: Whole) -> wire.ChatChoice:
        return wire.ChatChoice(index, finish_reason(reply.end), self._logprobs(reply.pieces), message=_message(reply))

    def _logprobs(self, pieces: Sequence[Piece]) -> wire.ChatLogprobs | None:
        content = token_logprobs(pieces, self.head.vocabulary)
        return wire.ChatLogprobs(content) if content else None


@dataclass(frozen=True)
class Echo:
    """A prompt that is told again before its reply; with `chances`, if its log-probabilities were asked for."""

    text: str = ""
    first_token: int = -1
    chances: PromptChances | None = None


@dataclass
class TextWriter(_CompletionWriter):
    """Writes text completions. `echoes` has what comes before each reply."""

    echoes: Sequence[Echo]
    whole_object = chunk_object = "text_completion"
    _offsets: dict[int, int] = field(default_factory=dict, init=False)

    def chunks(self, stream: ReplyStream, index: int, event: Event) -> Iterator[wire.Completion]:
        if isinstance(event, Progress):
            yield self._chunk(wire.TextChoice(index, ""), progress=progress_of(event))
            return
        echo = self._echo(index)
        text = echo.text + event.text
        logprobs = self._logprobs(index, echo, [event] if isinstance(event, Piece) else [])
        if text or logprobs:
            yield self._chunk(wire.TextChoice(index, text, None, logprobs), stream)
        if isinstance(event, End):
            yield from self._closing(event, wire.TextChoice(index, "", finish_reason(event)))

    def _echo(self, index: int) -> Echo:
        """The echo at the first call, and nothing afterwards."""
        if index in self._offsets:
            return Echo()
        echo = self.echoes[index]
        self._offsets[index] = 0 if echo.chances else len(echo.text)
        return echo

    def _choice(self, index: int, reply: Whole) -> wire.TextChoice:
        echo = self._echo(index)
        logprobs = self._logprobs(index, echo, reply.pieces)
        return wire.TextChoice(index, echo.text + reply.text, finish_reason(reply.end), logprobs)

    def _logprobs(self, index: int, echo: Echo, pieces: Sequence[Piece]) -> wire.TextLogprobs | None:
        told = wire.TextLogprobs([], [], [], [])
        if echo.chances is not None:
            first = self.head.vocabulary.piece(echo.first_token).decode("utf-8", "replace")
            self._add(told, index, first, None, None)
            pieces = [*echo.chances.pieces, *pieces]
        for token in token_logprobs(pieces, self.head.vocabulary):
            # the likeliest last: of tokens with the same text it is the one that stays
            top = {token.token: token.logprob} | {each.token: each.logprob for each in token.top_logprobs[::-1]}
            self._add(told, index, token.token, token.logprob, top)
        return told if told.tokens else None

    def _add(
        self, told: wire.TextLogprobs, index: int, text: str, logprob: float | None, top: dict[str, float] | None
    ) -> None:
        told.tokens.append(text)
        told.token_logprobs.append(logprob)
        told.top_logprobs.append(top)
        told.text_offset.append(self._offsets[index])
        self._offsets[index] += len(text)


def _message(reply: Whole) -> wire.Message:
    said = reply.said
    message = wire.Message("assistant", said.content or (None if said.calls else ""), said.reasoning or UNSET)
    if said.calls:
        message.tool_calls = [
            wire.Call(wire.Function(call.name, call.arguments), id=reply.stream.call_id(index), type="function")
            for index, call in enumerate(said.calls)
        ]
    return message


def _delta(part: Part | None, stream: ReplyStream) -> wire.Message:
    match part:
        case None:  # a token that says nothing yet
            return wire.Message()
        case Content(text):
            return wire.Message(content=text)
        case Reasoning(text):
            return wire.Message(reasoning_content=text)
        case CallStart(index, name):
            return wire.Message(tool_calls=[wire.Call(wire.Function(name), index, stream.call_id(index), "function")])
        case CallArguments(index, text):
            return wire.Message(tool_calls=[wire.Call(wire.Function(arguments=text), index)])


def finish_reason(end: End) -> wire.FinishReason:
    """`tool_calls` only if all calls are complete: a client must not make a call that was cut off."""
    if end.finish is Finish.LENGTH:
        return "length"
    return "tool_calls" if end.num_calls and not end.has_half_call else "stop"
