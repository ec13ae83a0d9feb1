"""Records of requests that ended: the last of them one by one, and counts of all since the start, per tenant."""

import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from prometheus_client import Histogram

from leftoff.cache.report import ReuseReport
from leftoff.chat.diagnosis import explain_difference, suggest
from leftoff.engine.vocabulary import Vocabulary
from leftoff.scheduler.job import Finish
from leftoff.scheduler.run import Run
from leftoff.types import Prompt, Tokens

_SHARED_TOKENS = 48  # shown before a difference, to tell what kind it is
_FIRST_TOKEN_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


@dataclass(frozen=True)
class Record:
    """The reuse report of one request, as /cache/requests shows it."""

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
    namespace: str = ""  # tells whose it is, and is not shown

    def as_dict(self) -> dict[str, object]:
        shown = asdict(self)
        del shown["namespace"]
        return shown


class Journal:
    """The latest records; the oldest is dropped when it is full."""

    def __init__(self, vocabulary: Vocabulary, size: int) -> None:
        self._vocabulary = vocabulary
        self._records: deque[Record] = deque(maxlen=size)

    @property
    def records(self) -> list[Record]:
        """All records, the newest first."""
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
            prompt_ms=timings.prompt_ms,
            generation_ms=timings.generation_ms,
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
    """Where a prompt left the longest known prefix, with the text before and after."""

    position: int | None
    kind: str | None
    before: str
    after: str
    advice: tuple[str, ...] = ()


_NO_DIFFERENCE = _Difference(None, None, "", "")


@dataclass
class Counts:
    """Totals of one tenant since the server started. Written on the engine's thread alone."""

    reused_tokens: int = 0
    computed_tokens: Counter[str] = field(default_factory=Counter)  # by reason
    generated_tokens: int = 0
    read_ahead_tokens: int = 0
    prompt_seconds: float = 0.0
    generation_seconds: float = 0.0
    most_tokens: int = 0  # in one sequence
    requests: Counter[str] = field(default_factory=Counter)  # by finish
    first_token: Histogram = field(
        default_factory=lambda: Histogram(
            "leftoff_time_to_first_token_seconds",
            "From a request's arrival to its first token",
            buckets=_FIRST_TOKEN_SECONDS,
            registry=None,
        )
    )

    def add(self, record: Record) -> None:
        self.reused_tokens += record.reused
        self.computed_tokens.update(record.reasons)
        self.generated_tokens += record.generated
        self.prompt_seconds += record.prompt_ms / 1000
        self.generation_seconds += record.generation_ms / 1000
        self.most_tokens = max(self.most_tokens, record.prompt_tokens + record.generated)
        self.requests[record.finish] += 1
        if record.generated:
            self.first_token.observe((record.waited_ms + record.prompt_ms) / 1000)
