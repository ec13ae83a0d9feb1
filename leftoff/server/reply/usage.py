"""Numbers about a reply on the wire: OpenAI's `usage`, llama-server's `timings`, log-probabilities."""

import time
from collections.abc import Sequence

from msgspec import Struct

from leftoff.engine.vocabulary import Vocabulary
from leftoff.scheduler.job import Timings
from leftoff.server.reply.stream import End, Piece, Progress, ReplyStream, TokenChance, chances_of
from leftoff.types import Logits, Prompt


class PromptDetails(Struct):
    """How many tokens of the prompt came from the cache."""

    cached_tokens: int


class Usage(Struct):
    """OpenAI's `usage`."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class WireTimings(Struct, omit_defaults=True):
    """llama-server's names: `cache_n` reused, `prompt_n` computed. Drafts are told of where there were any."""

    cache_n: int
    prompt_n: int
    prompt_ms: float
    prompt_per_token_ms: float
    prompt_per_second: float
    predicted_n: int
    predicted_ms: float
    predicted_per_token_ms: float
    predicted_per_second: float
    draft_n: int = 0
    draft_n_accepted: int = 0


class PromptProgress(Struct):
    """llama-server's `prompt_progress`."""

    total: int
    cache: int
    processed: int
    time_ms: int


def usage_of(ends: Sequence[End], num_per_prompt: int = 1) -> Usage:
    """The sum over replies. Each prompt counts once, with the cached tokens of its first reply."""
    reports = [end.report for end in ends[::num_per_prompt] if end.report]
    prompt_tokens = sum(report.prompt_tokens for report in reports)
    generated = sum(end.timings.num_generated for end in ends)
    cached = sum(report.reused for report in reports)
    return Usage(prompt_tokens, generated, prompt_tokens + generated, PromptDetails(cached))


def timings_of(ends: Sequence[End], num_per_prompt: int = 1) -> WireTimings:
    """The sum over replies, as for `usage`; times are those of the slowest reply."""
    reports = [end.report for end in ends[::num_per_prompt] if end.report]
    return _wire_timings(
        reused=sum(report.reused for report in reports),
        computed=sum(report.computed for report in reports),
        prompt_ms=max(_prompt_ms(end.timings) for end in ends),
        generated=sum(end.timings.num_generated for end in ends),
        generation_ms=max(_generation_ms(end.timings) for end in ends),
        drafted=sum(end.timings.num_drafted for end in ends),
        accepted=sum(end.timings.num_accepted for end in ends),
    )


def timings_so_far(stream: ReplyStream) -> WireTimings:
    """The timings of a reply that is still running."""
    timings, report = stream.run.timings, stream.report
    return _wire_timings(
        reused=report.reused if report else 0,
        computed=report.computed if report else 0,
        prompt_ms=_prompt_ms(timings),
        generated=timings.num_generated,
        generation_ms=_generation_ms(timings),
        drafted=timings.num_drafted,
        accepted=timings.num_accepted,
    )


def usage_so_far(stream: ReplyStream) -> Usage:
    """The usage of a reply that is still running."""
    generated, report = stream.run.timings.num_generated, stream.report
    prompt_tokens, cached = (report.prompt_tokens, report.reused) if report else (0, 0)
    return Usage(prompt_tokens, generated, prompt_tokens + generated, PromptDetails(cached))


def progress_of(event: Progress) -> PromptProgress:
    """The progress of a prompt, on the wire."""
    return PromptProgress(event.total, event.reused, event.num_read, round(event.ms))


def _prompt_ms(timings: Timings) -> float:
    return max(0.0, timings.prompt_ms) if timings.first_token else 0.0


def _generation_ms(timings: Timings) -> float:
    end = timings.finished or time.perf_counter()
    return 1000 * (end - timings.first_token) if timings.first_token else 0.0


def _wire_timings(
    *,
    reused: int,
    computed: int,
    prompt_ms: float,
    generated: int,
    generation_ms: float,
    drafted: int,
    accepted: int,
) -> WireTimings:
    return WireTimings(
        cache_n=reused,
        prompt_n=computed,
        prompt_ms=prompt_ms,
        prompt_per_token_ms=_ratio(prompt_ms, computed),
        prompt_per_second=_ratio(1000 * computed, prompt_ms),
        predicted_n=generated,
        predicted_ms=generation_ms,
        predicted_per_token_ms=_ratio(generation_ms, generated),
        predicted_per_second=_ratio(1000 * generated, generation_ms),
        draft_n=drafted,
        draft_n_accepted=accepted,
    )


def _ratio(value: float, by: float) -> float:
    return value / by if by > 0 else 0.0


class TopLogprob(Struct):
    """One candidate: its token id, its text, and the bytes of the text, which may be no valid UTF-8."""

    id: int
    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(Struct):
    """The token that was sampled, and the most likely candidates at its position."""

    id: int
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class PromptChances:
    """The log-probabilities of a prompt's tokens, from the second on, as pieces without text. A job's `score`.

    Each is reduced as soon as it is computed: the logits of a long prompt would fill gigabytes.
    """

    def __init__(self, prompt: Prompt, num_top: int) -> None:
        self.pieces: list[Piece] = []
        self._tokens = prompt.tokens
        self._num_top = num_top

    def __call__(self, position: int, logits: Logits) -> None:
        token = int(self._tokens[position])
        self.pieces.append(Piece(token, "", (), *chances_of(token, logits, self._num_top)))


def token_logprobs(pieces: Sequence[Piece], vocabulary: Vocabulary) -> list[TokenLogprob]:
    """One for each token; empty when the request did not ask for log-probabilities."""

    def named(chance: TokenChance) -> TopLogprob:
        piece = vocabulary.piece(chance.token)
        return TopLogprob(chance.token, piece.decode("utf-8", "replace"), chance.logprob, list(piece))

    def with_others(chosen: TokenChance, top: Sequence[TokenChance]) -> TokenLogprob:
        own = named(chosen)
        return TokenLogprob(own.id, own.token, own.logprob, own.bytes, [*map(named, top)])

    return [with_others(piece.chosen, piece.top) for piece in pieces if piece.chosen is not None]
