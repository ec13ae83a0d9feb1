"""Replies as llama-server's completions."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields

from msgspec import UNSET, Struct, UnsetType

from leftoff.engine.vocabulary import Vocabulary
from leftoff.sampling import Sampling
from leftoff.scheduler.job import Finish
from leftoff.server.http.errors import error_body
from leftoff.server.llamacpp.types import GenerationSettings, NativeChunk, NativeCompletion, NativeRequest
from leftoff.server.reply.response import EVENTS, Whole, Writer
from leftoff.server.reply.stream import End, Event, Piece, Progress, ReplyStream
from leftoff.server.reply.usage import TokenLogprob, progress_of, timings_of, timings_so_far, token_logprobs
from leftoff.server.request.job import ReplyJob

_RANDOM_SEED = 0xFFFFFFFF  # in llama-server, a seed that is drawn anew each time
_STOP_TYPES = {Finish.END: "eos", Finish.LENGTH: "limit", Finish.STOPPED: "word"}


@dataclass
class NativeWriter(Writer):
    """Writes the replies to one request; several are answered as a list."""

    model: str
    vocabulary: Vocabulary
    context_tokens: int
    body: NativeRequest
    framing = EVENTS
    failure = staticmethod(error_body)
    _has_new_line: set[int] = field(default_factory=set)
    _num_sent: Counter[int] = field(default_factory=Counter)  # tokens: the engine may be ahead of the stream

    @property
    def shows_progress(self) -> bool:
        return bool(self.body.return_progress)

    def whole(self, replies: Sequence[Whole]) -> NativeCompletion | list[NativeCompletion]:
        answers = [self._whole(index, reply) for index, reply in enumerate(replies)]
        return answers if len(answers) > 1 else answers[0]

    def chunks(self, stream: ReplyStream, index: int, event: Event) -> Iterator[Struct]:
        match event:
            case Progress():
                chunk = self._chunk(stream, index, "", [])
                chunk.prompt_progress = progress_of(event)
                yield chunk
            case Piece():
                yield self._piece(stream, index, event)
            case End():
                yield self._final(stream.job, index, event.text, [], event)

    def _piece(self, stream: ReplyStream, index: int, piece: Piece) -> NativeChunk:
        if "\n" in piece.text:
            self._has_new_line.add(index)
        self._num_sent[index] += 1
        chunk = self._chunk(stream, index, piece.text, [piece.token])
        chunk.completion_probabilities = self._chances([piece])
        if self.body.timings_per_token:
            chunk.timings = timings_so_far(stream)
        return chunk

    def _chunk(self, stream: ReplyStream, index: int, text: str, tokens: list[int]) -> NativeChunk:
        return NativeChunk(index, text, tokens, self._num_sent[index], stream.job.prompt.length)

    def _whole(self, index: int, reply: Whole) -> NativeCompletion:
        if "\n" in reply.text:
            self._has_new_line.add(index)
        tokens = [piece.token for piece in reply.pieces] if self.body.return_tokens else []
        answer = self._final(reply.stream.job, index, reply.text, tokens, reply.end)
        answer.completion_probabilities = self._chances(reply.pieces)
        return answer

    def _final(self, job: ReplyJob, index: int, text: str, tokens: list[int], end: End) -> NativeCompletion:
        num_generated = end.timings.num_generated
        is_full = job.prompt.length + num_generated >= self.context_tokens
        return NativeCompletion(
            index=index,
            content=text,
            tokens=tokens,
            model=self.model,
            prompt=self.vocabulary.text(job.prompt.tokens),
            tokens_predicted=num_generated,
            tokens_evaluated=job.prompt.length,
            tokens_cached=end.report.reused if end.report else 0,
            truncated=end.finish is Finish.LENGTH and is_full,
            stop_type=_STOP_TYPES.get(end.finish, "none"),
            stopping_word=end.stop or "",
            has_new_line=index in self._has_new_line,
            generation_settings=settings_of(job, is_stream=bool(self.body.stream)),
            timings=timings_of([end]),
            stop=True,
        )

    def _chances(self, pieces: Sequence[Piece]) -> list[TokenLogprob] | UnsetType:
        return token_logprobs(pieces, self.vocabulary) or UNSET


def settings_of(job: ReplyJob, *, is_stream: bool) -> GenerationSettings:
    """The settings of a reply, with the defaults that its request did not set."""
    own = {"stop": job.stops, "ignore_eos": job.ignore_end, "stream": is_stream, "n_probs": job.num_top_logprobs}
    return default_settings(job.sampling, job.max_tokens) | own


def default_settings(sampling: Sampling, max_tokens: int | None) -> GenerationSettings:
    """The settings of a request that sets nothing, by llama-server's names."""
    limit = -1 if max_tokens is None else max_tokens
    chosen = {field.name: getattr(sampling, field.name) for field in fields(sampling)}
    return chosen | {
        "seed": _RANDOM_SEED if sampling.seed is None else sampling.seed,
        "n_predict": limit,
        "max_tokens": limit,
        "stop": [],
        "ignore_eos": False,
        "stream": True,
        "n_probs": 0,
    }
