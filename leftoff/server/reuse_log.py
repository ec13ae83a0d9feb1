"""Records of requests that ended: the last of them one by one, and counts of all since the start, per tenant."""

import sys
import time
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import numpy.typing as npt
from prometheus_client import Histogram

from leftoff.cache.report import ReuseReport
from leftoff.chat.diagnosis import explain_difference, suggest
from leftoff.engine.vocabulary import Vocabulary
from leftoff.scheduler.job import Finish
from leftoff.scheduler.run import Run
from leftoff.server.http.errors import CLIENT_GONE
from leftoff.types import Prompt

REFUSED = "refused"
_SHARED_TOKENS = 192  # shown before a difference, to tell what kind it is
_FIRST_TOKEN_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


@dataclass(frozen=True)
class RequestRecord:
    """The reuse report of one request, or why it was refused, as /cache/requests shows it."""

    id: str
    at: float
    prompt_tokens: int = 0
    reused: int = 0
    computed: int = 0
    unread: int = 0  # tokens of the prompt that were never read: the request was cancelled, or failed
    generated: int = 0
    drafted: int = 0
    accepted: int = 0  # of the tokens that were drafted
    drafted_from: dict[str, int] = field(default_factory=dict)  # the accepted ones, by where they were copied from
    source: str = "nothing"
    reasons: dict[str, int] = field(default_factory=dict)
    differs_at: int | None = None
    difference: str | None = None
    before: str = ""
    after: str = ""
    finish: str = REFUSED
    error: str | None = None  # why it failed or was refused
    status: int = 200  # of its HTTP response, where it was refused
    waited_ms: float = 0.0
    prompt_ms: float = 0.0
    first_token_ms: float | None = None
    generation_ms: float = 0.0
    line: str = ""
    notes: tuple[str, ...] = ()
    origins: dict[str, int] = field(default_factory=dict)  # tokens by where they were reused from, or by reason
    namespace: str = ""  # tells whose it is, and is not shown
    spans: "Spans | None" = None  # shown for one record alone: a conversation may have thousands of messages

    def as_dict(self) -> dict[str, object]:
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _NOT_SHOWN}

    def in_detail(self) -> dict[str, object]:
        """With where the tokens of each message of the prompt came from."""
        return self.as_dict() | {"messages": self.spans.origins() if self.spans is not None else []}

    @property
    def ending(self) -> str:
        """The end of the log line: tokens generated, time to first token, and whether it failed or was cancelled."""
        if self.finish == REFUSED:
            return ""
        ms = self.waited_ms + self.prompt_ms + self.generation_ms
        parts = [f"{self.generated:,} generated"] if self.generated else []
        if self.drafted:
            parts[-1:] = [f"{self.generated:,} generated, {self.accepted:,} of {self.drafted:,} drafted right"]
        if self.first_token_ms is not None:
            parts.append(f"first token after {self.first_token_ms:,.0f} ms")
        if self.finish == Finish.FAILED.value:
            parts.append(f"failed after {ms:,.0f} ms: {self.error}")
        elif self.finish == Finish.CANCELLED.value:
            parts.append(f"cancelled after {ms:,.0f} ms")
        elif not parts:
            parts.append(f"read in {self.prompt_ms:,.0f} ms")
        return " · ".join(parts)


_NOT_SHOWN = ("namespace", "spans")


@dataclass(frozen=True)
class Spans:
    """Where each message of a prompt begins, without gaps: what a template writes before a message belongs to it."""

    report: ReuseReport
    roles: tuple[str, ...]
    starts: npt.NDArray[np.int32]

    @classmethod
    def of(cls, prompt: Prompt, report: ReuseReport) -> "Spans":
        """The last span is what opens the reply; a raw prompt has no messages, and is one span."""
        if not prompt.messages:
            return cls(report, ("prompt",), np.zeros(1, np.int32))
        starts = [0, *(message.start for message in prompt.messages[1:]), prompt.messages[-1].end]
        roles = (*(sys.intern(message.role) for message in prompt.messages), "opening")
        return cls(report, roles, np.array(starts, np.int32))

    def origins(self) -> list[dict[str, object]]:
        """For each message its role, its tokens, and how many of them came from where."""
        ends = [*map(int, self.starts[1:]), self.report.prompt_tokens]
        return [
            {"role": role, "tokens": end - start, "origins": self.report.count(start, end)}
            for role, start, end in zip(self.roles, map(int, self.starts), ends, strict=True)
        ]


class Journal:
    """The latest records; the oldest is dropped when it is full."""

    def __init__(self, vocabulary: Vocabulary, size: int) -> None:
        self._vocabulary = vocabulary
        self._records: deque[RequestRecord] = deque(maxlen=size)

    @property
    def records(self) -> list[RequestRecord]:
        """All records, the newest first."""
        return list(reversed(self._records))

    def clear(self) -> None:
        self._records.clear()

    def add(
        self,
        request_id: str,
        run: Run,
        report: ReuseReport | None,
        finish: Finish,
        notes: Sequence[str],
        error: Exception | None = None,
    ) -> RequestRecord:
        """Records a request that ended. It has no report if it never got a slot."""
        timings, prompt = run.timings, run.job.prompt
        record = RequestRecord(
            id=request_id,
            at=time.time(),
            prompt_tokens=prompt.length,
            unread=prompt.length,
            generated=timings.num_generated,
            drafted=timings.num_drafted,
            accepted=timings.num_accepted,
            drafted_from=dict(timings.drafted_from),
            finish=finish.value,
            error=str(error) if error is not None else None,
            waited_ms=timings.waited_ms,
            prompt_ms=timings.prompt_ms,
            first_token_ms=timings.first_token_ms,
            generation_ms=timings.generation_ms,
            line=f"read none of {prompt.length:,}",
            notes=tuple(notes),
            namespace=run.job.namespace,
        )
        if report is not None:
            record = self._with_report(record, prompt, report.read_up_to(timings.num_read))
        self._records.append(record)
        return record

    def add_refusal(self, line: str, status: int, error: str, namespace: str) -> None:
        """Records a request that was refused, or whose client left, before it became a job."""
        finish = Finish.CANCELLED.value if status == CLIENT_GONE else REFUSED
        record = RequestRecord(
            "", time.time(), finish=finish, status=status, error=error, line=line, namespace=namespace
        )
        self._records.append(record)

    def _with_report(self, record: RequestRecord, prompt: Prompt, report: ReuseReport) -> RequestRecord:
        difference = self._difference(prompt, report)
        return replace(
            record,
            reused=report.reused,
            computed=report.computed,
            unread=report.unread,
            source=report.source,
            reasons={part.reason.value: part.num_tokens for part in report.rereads},
            differs_at=difference.position,
            difference=difference.kind,
            before=difference.before,
            after=difference.after,
            line=report.line(),
            notes=(*record.notes, *difference.advice),
            origins=report.count(0, report.prompt_tokens),
            spans=Spans.of(prompt, report),
        )

    def _difference(self, prompt: Prompt, report: ReuseReport) -> "_Difference":
        """For an edit, and for a header that changed, even if none of the text after the change was known."""
        in_header = report.known < (prompt.header_end or 0)
        if not (report.before.size and report.after.size and (report.is_edit or in_header)):
            return _NO_DIFFERENCE
        text = self._vocabulary.text
        shared = text(prompt.tokens[max(0, report.known - _SHARED_TOKENS) : report.known])
        before, after = text(report.before), text(report.after)
        advice = suggest(before, after, shared) if in_header else None
        if not report.is_edit and advice is None:
            return _NO_DIFFERENCE
        kind = explain_difference(before, after, in_header, shared)
        return _Difference(report.known, kind, before, after, (advice,) if advice else ())


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
    """Totals of one tenant since the server started. Written on the engine's thread, but for `refused`."""

    reused_tokens: int = 0
    computed_tokens: Counter[str] = field(default_factory=Counter)  # by reason
    generated_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: Counter[str] = field(default_factory=Counter)  # of those, by where they were copied from
    read_ahead_tokens: int = 0
    prompt_seconds: float = 0.0
    generation_seconds: float = 0.0
    most_tokens: int = 0  # in one sequence
    requests: Counter[str] = field(default_factory=Counter)  # by finish
    refused: Counter[str] = field(default_factory=Counter)  # by HTTP status; written on the event loop alone
    first_token: Histogram = field(
        default_factory=lambda: Histogram(
            "leftoff_time_to_first_token_seconds",
            "From a request's arrival to its first token",
            buckets=_FIRST_TOKEN_SECONDS,
            registry=None,
        )
    )

    def add(self, record: RequestRecord) -> None:
        self.reused_tokens += record.reused
        self.computed_tokens.update(record.reasons)
        self.generated_tokens += record.generated
        self.drafted_tokens += record.drafted
        self.accepted_tokens.update(record.drafted_from)
        self.prompt_seconds += record.prompt_ms / 1000
        self.generation_seconds += record.generation_ms / 1000
        self.most_tokens = max(self.most_tokens, record.prompt_tokens + record.generated)
        self.requests[record.finish] += 1
        if record.first_token_ms is not None:
            self.first_token.observe(record.first_token_ms / 1000)
