"""Replies as llama-server's completions."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields

from leftoff.engine.vocabulary import Vocabulary
from leftoff.sampling import Sampling
from leftoff.scheduler.job import Finish
from leftoff.server.llamacpp.types import NativeRequest
from leftoff.server.reply.response import EVENTS, Json, Writer
from leftoff.server.reply.stream import End, Event, Piece, Progress, ReplyStream
from leftoff.server.reply.usage import progress_of, timings_of, token_logprobs
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
    _num_sent: Counter[int] = field(default_factory=Counter)  # tokens: the engine may be ahead of the stream

    @property
    def shows_progress(self) -> bool:
        return bool(self.body.return_progress)

    def whole(self, replies: Sequence[ReplyStream]) -> Json | list[Json]:
        answers = [*map(self._whole, replies)]
        return answers if len(answers) > 1 else answers[0]

    def chunks(self, stream: ReplyStream, event: Event) -> Iterator[Json]:
        match event:
            case Progress():
                yield self._chunk(stream, "", []) | {"prompt_progress": progress_of(event)}
            case Piece():
                yield self._piece(stream, event)
            case End():
                yield self._final(stream, event.text, [])

    def _piece(self, stream: ReplyStream, piece: Piece) -> Json:
        self._num_sent[stream.index] += 1
        chunk = self._chunk(stream, piece.text, [piece.token])
        if self.body.timings_per_token:
            chunk["timings"] = timings_of([stream])
        return chunk | self._chances([piece])

    def _chunk(self, stream: ReplyStream, text: str, tokens: list[int]) -> Json:
        """One token of a reply."""
        return {
            "index": stream.index,
            "content": text,
            "tokens": tokens,
            "tokens_predicted": self._num_sent[stream.index],
            "tokens_evaluated": stream.job.prompt.length,
            "stop": False,
            "id_slot": -1,
        }

    def _whole(self, reply: ReplyStream) -> Json:
        tokens = [piece.token for piece in reply.pieces] if self.body.return_tokens else []
        return self._final(reply, reply.text, tokens, self._chances(reply.pieces))

    def _final(self, reply: ReplyStream, text: str, tokens: list[int], chances: Json | None = None) -> Json:
        """A whole reply, or the last chunk of a streamed one."""
        job, finish, num_generated = reply.job, reply.end.finish, reply.timings.num_generated
        is_full = job.prompt.length + num_generated >= self.context_tokens
        return {
            **self._chunk(reply, text, tokens),
            "tokens_predicted": num_generated,
            "stop": True,
            "timings": timings_of([reply]),
            **(chances or {}),
            "model": self.model,
            "prompt": self.vocabulary.text(job.prompt.tokens),
            "tokens_cached": reply.report.reused,
            "truncated": finish is Finish.LENGTH and is_full,
            "stop_type": _STOP_TYPES.get(finish, "none"),
            "stopping_word": reply.stop or "",
            "has_new_line": "\n" in reply.text,
            "generation_settings": settings_of(job, is_stream=bool(self.body.stream)),
        }

    def _chances(self, pieces: Sequence[Piece]) -> Json:
        chances = token_logprobs(pieces, self.vocabulary)
        return {"completion_probabilities": chances} if chances else {}


def settings_of(job: ReplyJob, *, is_stream: bool) -> Json:
    """The settings of a reply, with the defaults that its request did not set."""
    own = {"stop": job.stops, "ignore_eos": job.ignore_end, "stream": is_stream, "n_probs": job.num_top_logprobs}
    return default_settings(job.sampling, job.max_tokens) | own


def default_settings(sampling: Sampling, max_tokens: int | None) -> Json:
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
