"""The last reuse reports, with words: what was reused, why the rest was read, and the text on both sides."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from leftoff.cache.report import ReuseReport
from leftoff.chat.diagnosis import explain_difference, suggest
from leftoff.engine.vocabulary import Vocabulary
from leftoff.scheduler.job import Finish
from leftoff.scheduler.run import Run
from leftoff.types import Prompt, Tokens

_SHARED_TOKENS = 48  # before a difference, to tell what kind it is


@dataclass(frozen=True)
class Record:
    """One request, as people and programs read it."""

    id: str
    at: float
    prompt_tokens: int
    reused: int
    computed: int
    generated: int
    source: str
    reasons: dict[str, int]
    differs_at: int | None
    difference: str | None
    before: str
    after: str
    finish: str
    waited_ms: float
    prompt_ms: float
    generation_ms: float
    line: str
    notes: tuple[str, ...] = ()
    namespace: str = ""  # whose it is: not to be shown

    def as_dict(self) -> dict[str, object]:
        shown = asdict(self)
        del shown["namespace"]
        return shown


class Journal:
    """Bounded: the oldest record goes."""

    def __init__(self, vocabulary: Vocabulary, size: int) -> None:
        self._vocabulary = vocabulary
        self._records: deque[Record] = deque(maxlen=size)

    @property
    def records(self) -> list[Record]:
        """The newest first."""
        return list(reversed(self._records))

    def clear(self) -> None:
        self._records.clear()

    def add(self, request_id: str, run: Run, report: ReuseReport, finish: Finish, notes: Sequence[str]) -> Record:
        timings, difference = run.timings, self._difference(run.job.prompt, report)
        record = Record(
            id=request_id,
            at=time.time(),
            prompt_tokens=report.prompt_tokens,
            reused=report.reused,
            computed=report.computed,
            generated=timings.num_generated,
            source=report.source,
            reasons={part.reason.value: part.num_tokens for part in report.rereads},
            differs_at=difference.position,
            difference=difference.kind,
            before=difference.before,
            after=difference.after,
            finish=finish.value,
            waited_ms=timings.waited_ms,
            # a request that was cancelled while its prompt was read has no first token
            prompt_ms=timings.prompt_ms if timings.first_token else 1000 * (timings.finished - timings.started),
            generation_ms=timings.generation_ms if timings.first_token else 0.0,
            line=report.line(),
            notes=(*notes, *difference.advice),
            namespace=run.job.namespace,
        )
        self._records.append(record)
        return record

    def _difference(self, prompt: Prompt, report: ReuseReport) -> "_Difference":
        if not (report.before.size and report.after.size):  # nothing stood here, or a known prompt ends here
            return _NO_DIFFERENCE
        shared = self._text(prompt.tokens[max(0, report.known - _SHARED_TOKENS) : report.known])
        before, after = self._text(report.before), self._text(report.after)
        in_header = report.known < (prompt.header_end or 0)
        advice = suggest(before, after, shared) if in_header else None
        kind = explain_difference(before, after, in_header, shared)
        return _Difference(report.known, kind, before, after, (advice,) if advice else ())

    def _text(self, tokens: Tokens) -> str:
        return self._vocabulary.detokenize(tokens).decode("utf-8", "replace")


@dataclass(frozen=True)
class _Difference:
    """Where a prompt left what was known, in words."""

    position: int | None
    kind: str | None
    before: str
    after: str
    advice: tuple[str, ...] = ()


_NO_DIFFERENCE = _Difference(None, None, "", "")
