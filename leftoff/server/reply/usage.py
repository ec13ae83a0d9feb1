"""Numbers about a reply on the wire: OpenAI's `usage`, llama-server's `timings`, log-probabilities.

Those of a reply that is still running are what they are by now.
"""

import time
from collections.abc import Sequence

from leftoff.engine.vocabulary import Vocabulary
from leftoff.scheduler.job import Timings
from leftoff.server.reply.response import Json
from leftoff.server.reply.stream import Piece, Progress, ReplyStream, TokenChance, chances_of
from leftoff.types import Logits, Prompt


def usage_of(replies: Sequence[ReplyStream], num_per_prompt: int = 1) -> Json:
    """OpenAI's `usage`, over all replies. Each prompt counts once, with the cached tokens of its first reply."""
    reports = [reply.report for reply in replies[::num_per_prompt]]
    prompt_tokens = sum(report.prompt_tokens for report in reports)
    generated = sum(reply.timings.num_generated for reply in replies)
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": generated,
        "total_tokens": prompt_tokens + generated,
        "prompt_tokens_details": {"cached_tokens": sum(report.reused for report in reports)},
    }


def timings_of(replies: Sequence[ReplyStream], num_per_prompt: int = 1) -> Json:
    """llama-server's `timings`: counts over all replies, as for `usage`, and the times of the slowest reply.

    `cache_n` tokens were reused, and `prompt_n` computed. Drafts are told of where there were any.
    """
    reports = [reply.report for reply in replies[::num_per_prompt]]
    timings = [reply.timings for reply in replies]
    computed = sum(report.computed for report in reports)
    generated = sum(each.num_generated for each in timings)
    prompt_ms = max(each.prompt_ms for each in timings)
    generation_ms = max(map(_generation_ms, timings))
    drafts = {
        "draft_n": sum(each.num_drafted for each in timings),
        "draft_n_accepted": sum(each.num_accepted for each in timings),
    }
    return {
        "cache_n": sum(report.reused for report in reports),
        "prompt_n": computed,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": _ratio(prompt_ms, computed),
        "prompt_per_second": _ratio(1000 * computed, prompt_ms),
        "predicted_n": generated,
        "predicted_ms": generation_ms,
        "predicted_per_token_ms": _ratio(generation_ms, generated),
        "predicted_per_second": _ratio(1000 * generated, generation_ms),
    } | {name: number for name, number in drafts.items() if number}


def progress_of(event: Progress) -> Json:
    """llama-server's `prompt_progress`."""
    return {"total": event.total, "cache": event.reused, "processed": event.num_read, "time_ms": round(event.ms)}


def _generation_ms(timings: Timings) -> float:
    end = timings.finished or time.perf_counter()
    return 1000 * (end - timings.first_token) if timings.first_token else 0.0


def _ratio(value: float, by: float) -> float:
    return value / by if by > 0 else 0.0


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


def token_logprobs(pieces: Sequence[Piece], vocabulary: Vocabulary) -> list[Json]:
    """One for each token, with the likeliest candidates at its position; empty unless the request asked for them.

    The bytes of a token's text may be no valid UTF-8.
    """

    def named(chance: TokenChance) -> Json:
        token = chance.token
        text, data = vocabulary.token_text(token), list(vocabulary.piece(token))
        return {"id": token, "token": text, "logprob": chance.logprob, "bytes": data}

    return [
        named(piece.chosen) | {"top_logprobs": [*map(named, piece.top)]} for piece in pieces if piece.chosen is not None
    ]
