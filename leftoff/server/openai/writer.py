"""Replies as OpenAI's chat completions and completions: whole, and chunk by chunk."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from leftoff.chat.formats.parts import CallArguments, CallStart, Content, Part, Reasoning, parse_arguments
from leftoff.engine.vocabulary import Vocabulary
from leftoff.scheduler.job import Finish
from leftoff.server.openai.types import CompletionRequest
from leftoff.server.reply.response import EVENTS, Json, Writer
from leftoff.server.reply.stream import End, Event, Piece, Progress, ReplyStream
from leftoff.server.reply.usage import PromptChances, progress_of, timings_of, token_logprobs, usage_of
from leftoff.server.request.fields import ChatRequest

STREAM = replace(EVENTS, last=b"data: [DONE]\n\n")


@dataclass(frozen=True)
class Head:
    """The fields that all chunks of one answer share, and the request."""

    id: str
    created: int
    model: str
    fingerprint: str
    vocabulary: Vocabulary
    body: ChatRequest | CompletionRequest
    num_replies: int

    @property
    def num_each(self) -> int:
        """Replies to each prompt."""
        return self.body.n or 1


@dataclass
class _CompletionWriter(Writer):
    """Common to chats and texts: the envelope around the choices, and the chunks that end a stream."""

    head: Head
    framing = STREAM
    whole_object: ClassVar[str]
    chunk_object: ClassVar[str]
    _ended: dict[int, ReplyStream] = field(default_factory=dict, init=False)

    @property
    def shows_progress(self) -> bool:
        return bool(self.head.body.return_progress)

    def whole(self, replies: Sequence[ReplyStream]) -> Json:
        choices = [self._choice(reply) for reply in replies]
        return self._envelope(self.whole_object, choices) | self._cost(replies)

    @abstractmethod
    def _choice(self, reply: ReplyStream) -> Json:
        """A reply that has ended."""

    def _chunk(self, choice: Json) -> Json:
        return self._envelope(self.chunk_object, [choice])

    def _chunk_with_cost(self, choice: Json, stream: ReplyStream) -> Json:
        """A chunk, with what the reply has cost so far if the request wants that in every chunk."""
        chunk, body = self._chunk(choice), self.head.body
        if body.stream_options and body.stream_options.is_usage_continuous:
            chunk["usage"] = usage_of([stream])
        if body.timings_per_token:
            chunk["timings"] = timings_of([stream])
        return chunk

    def _closing(self, stream: ReplyStream, choice: Json) -> Iterator[Json]:
        """The chunk with the finish reason of one reply. The last chunk of all has the timings, and usage if asked."""
        self._ended[stream.index] = stream
        chunk = self._chunk(choice)
        if len(self._ended) < self.head.num_replies:
            yield chunk
            return
        replies = [self._ended[index] for index in sorted(self._ended)]
        options = self.head.body.stream_options
        if options and options.include_usage:
            yield chunk
            yield self._envelope(self.chunk_object, []) | self._cost(replies)
        else:
            yield chunk | {"timings": timings_of(replies, self.head.num_each)}

    def _envelope(self, name: str, choices: Sequence[Json]) -> Json:
        head = self.head
        return {
            "id": head.id,
            "object": name,
            "created": head.created,
            "model": head.model,
            "system_fingerprint": head.fingerprint,
            "choices": choices,
        }

    def _cost(self, replies: Sequence[ReplyStream]) -> Json:
        return {"usage": usage_of(replies, self.head.num_each), "timings": timings_of(replies, self.head.num_each)}


@dataclass
class ChatWriter(_CompletionWriter):
    """Writes chat completions: content, reasoning and tool calls apart."""

    whole_object = "chat.completion"
    chunk_object = "chat.completion.chunk"
    _begun: set[int] = field(default_factory=set, init=False)
    _answered: set[int] = field(default_factory=set, init=False)  # those with content or calls

    def chunks(self, stream: ReplyStream, event: Event) -> Iterator[Json]:
        index = stream.index
        if isinstance(event, Progress):
            yield self._chunk(self._first(index, None)) | {"prompt_progress": progress_of(event)}
            return
        logprobs = self._logprobs([event]) if isinstance(event, Piece) and event.chosen else None
        parts: Sequence[Part | None] = event.parts or ((None,) if logprobs else ())
        if parts and index not in self._begun:
            yield self._chunk(self._first(index, parts[0]))
        for part in parts:
            if isinstance(part, Content | CallStart):
                self._answered.add(index)
            yield self._chunk_with_cost(_chat_choice(index, None, logprobs, delta=_delta(part, stream)), stream)
            logprobs = None  # they come with the first part of a token
        if isinstance(event, End):
            yield from self._closing(stream, _chat_choice(index, finish_reason(stream), delta=self._last(index)))

    def _first(self, index: int, part: Part | None) -> Json:
        """The beginning of a reply. As in a whole one, `content` is null unless there is some."""
        self._begun.add(index)
        content = "" if isinstance(part, Content) else None
        return _chat_choice(index, delta={"role": "assistant", "content": content})

    def _last(self, index: int) -> Json:
        """A reply of neither content nor calls has an empty text as `content`."""
        role = {} if index in self._begun else {"role": "assistant"}
        return role if index in self._answered else role | {"content": ""}

    def _choice(self, reply: ReplyStream) -> Json:
        logprobs = self._logprobs(reply.pieces)
        return _chat_choice(reply.index, finish_reason(reply), logprobs, message=_message(reply))

    def _logprobs(self, pieces: Sequence[Piece]) -> Json | None:
        content = token_logprobs(pieces, self.head.vocabulary)
        return {"content": content} if content else None


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

    def chunks(self, stream: ReplyStream, event: Event) -> Iterator[Json]:
        index = stream.index
        if isinstance(event, Progress):
            yield self._chunk(_text_choice(index)) | {"prompt_progress": progress_of(event)}
            return
        echo = self._echo(index)
        text = echo.text + event.text
        logprobs = self._logprobs(index, echo, [event] if isinstance(event, Piece) else [])
        if text or logprobs:
            yield self._chunk_with_cost(_text_choice(index, text, None, logprobs), stream)
        if isinstance(event, End):
            yield from self._closing(stream, _text_choice(index, "", finish_reason(stream)))

    def _echo(self, index: int) -> Echo:
        """The echo at the first call, and nothing afterwards."""
        if index in self._offsets:
            return Echo()
        echo = self.echoes[index]
        self._offsets[index] = 0 if echo.chances else len(echo.text)
        return echo

    def _choice(self, reply: ReplyStream) -> Json:
        echo = self._echo(reply.index)
        logprobs = self._logprobs(reply.index, echo, reply.pieces)
        return _text_choice(reply.index, echo.text + reply.text, finish_reason(reply), logprobs)

    def _logprobs(self, index: int, echo: Echo, pieces: Sequence[Piece]) -> Json | None:
        """Parallel lists. The first token of a prompt has no log-probability."""
        told: Json = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}

        def tell(text: str, logprob: float | None, top: dict[str, float] | None) -> None:
            for name, value in zip(told, (text, logprob, top, self._offsets[index]), strict=True):
                told[name].append(value)
            self._offsets[index] += len(text)

        if echo.chances is not None:
            tell(self.head.vocabulary.token_text(echo.first_token), None, None)
            pieces = [*echo.chances.pieces, *pieces]
        for token in token_logprobs(pieces, self.head.vocabulary):
            # the likeliest last: of tokens with the same text it is the one that stays
            likeliest = [token, *token["top_logprobs"][::-1]]
            tell(token["token"], token["logprob"], {each["token"]: each["logprob"] for each in likeliest})
        return told if told["tokens"] else None


def _chat_choice(index: int, reason: str | None = None, logprobs: Json | None = None, **said: Json) -> Json:
    """One of the replies: `message` in a whole answer, `delta` in a chunk."""
    return {"index": index, "finish_reason": reason, "logprobs": logprobs, **said}


def _text_choice(index: int, text: str = "", reason: str | None = None, logprobs: Json | None = None) -> Json:
    return {"index": index, "text": text, "finish_reason": reason, "logprobs": logprobs}


def _message(reply: ReplyStream) -> Json:
    """A reply of calls alone has null as `content`."""
    said = reply.said
    message: Json = {"role": "assistant", "content": said.content or (None if said.calls else "")}
    if said.reasoning:
        message["reasoning_content"] = said.reasoning
    if said.calls:
        message["tool_calls"] = [
            {
                "function": {"name": call.name, "arguments": call.arguments},
                "id": reply.call_id(index),
                "type": "function",
            }
            for index, call in enumerate(said.calls)
        ]
    return message


def _delta(part: Part | None, stream: ReplyStream) -> Json:
    """What a part adds to the message. Of a call, the first addition has the id and the name."""
    match part:
        case None:  # a token that says nothing yet
            return {}
        case Content(text):
            return {"content": text}
        case Reasoning(text):
            return {"reasoning_content": text}
        case CallStart(index, name):
            function = {"name": name, "arguments": ""}
            call = {"function": function, "index": index, "id": stream.call_id(index), "type": "function"}
            return {"tool_calls": [call]}
        case CallArguments(index, text):
            return {"tool_calls": [{"function": {"arguments": text}, "index": index}]}


def finish_reason(reply: ReplyStream) -> str:
    """`tool_calls` only if all calls are complete: a client must not make a call that was cut off."""
    if reply.end.finish is Finish.LENGTH:
        return "length"
    calls = reply.said.calls
    return "tool_calls" if calls and parse_arguments(calls[-1].arguments) is not None else "stop"
