"""Records of requests that ended: the last of them one by one, and counts of all since the start, per tenant."""

import logging
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace

import numpy as np
import numpy.typing as npt
from prometheus_client import Histogram

from leftoff.cache.report import ReuseReport
from leftoff.chat.diagnosis import explain_difference, suggest
from leftoff.chat.learner import VOLATILE
from leftoff.host.callers import NOBODY, PREWARM, Caller, Callers, Sums
from leftoff.lru import LruCache
from leftoff.scheduler.job import Finish
from leftoff.scheduler.run import Run
from leftoff.types import Prompt, Tokens, owner_of

logger = logging.getLogger("leftoff.requests")

REFUSED = "refused"
_SHARED_TOKENS = 192  # shown before a difference, to tell what kind it is
_LOGGED_NOTES = 256
_TOLD_MS = 100  # less is not worth a word
_FIRST_TOKEN_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


@dataclass(frozen=True)
class RequestRecord:
    """The reuse report of one request, or why it was refused, as /cache/requests shows it."""

    id: str
    at: float
    caller: Caller = NOBODY  # its fields are shown as the record's own
    model: str = ""  # none was asked if the request was refused
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
    waited_for: str = ""  # models that were busy or loading, if it was for them
    prompt_ms: float = 0.0
    first_token_ms: float | None = None
    generation_ms: float = 0.0
    saved_ms: float = 0.0  # what it would have taken to read the tokens that were reused, at the rate measured here
    line: str = ""
    images: tuple[str, ...] = ()  # for each picture, how many tokens it has and whether it was reused
    notes: tuple[str, ...] = ()
    origins: dict[str, int] = field(default_factory=dict)  # tokens by where they were reused from, or by reason
    namespace: str = ""  # tells whose it is, and is not shown
    spans: "Spans | None" = None  # shown for one record alone: a conversation may have thousands of messages

    def as_dict(self) -> dict[str, object]:
        shown = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in _NOT_SHOWN}
        return {name: value for name, value in asdict(self.caller).items() if name not in _NOT_SHOWN} | shown

    def logged(self) -> dict[str, object]:
        """The fields that are logged: none has words of conversations."""
        return {name: value for name, value in self.as_dict().items() if name not in _NOT_LOGGED}

    def in_detail(self) -> dict[str, object]:
        """All fields, and where the tokens of each message of the prompt came from."""
        return self.as_dict() | {"messages": self.spans.origins() if self.spans is not None else []}

    @property
    def ending(self) -> str:
        """The end of the log line: tokens generated, time to first token, and whether it failed or was cancelled."""
        if self.finish == REFUSED:
            return ""
        ms = self.waited_ms + self.prompt_ms + self.generation_ms
        drafted = f", {self.accepted:,} of {self.drafted:,} drafted right" if self.drafted else ""
        parts = [f"waited {self.waited_ms / 1000:,.1f} s: {self.waited_for}"] if self.waited_for else []
        parts += [f"{self.saved_ms / 1000:,.1f} s spared"] if self.saved_ms >= _TOLD_MS else []
        parts += [f"{self.generated:,} generated{drafted}"] if self.generated or drafted else []
        if self.first_token_ms is not None:
            parts.append(f"first token after {self.first_token_ms:,.0f} ms")
        if self.finish == Finish.FAILED.value:
            parts.append(f"failed after {ms:,.0f} ms: {self.error}")
        elif self.finish == Finish.CANCELLED.value:
            parts.append(f"cancelled after {ms:,.0f} ms")
        elif self.first_token_ms is None and not self.generated:
            parts.append(f"read in {self.prompt_ms:,.0f} ms")
        return " · ".join(parts)


_NOT_SHOWN = ("caller", "trace", "namespace", "spans")
_NOT_LOGGED = ("title", "before", "after", "line", "notes", "at")


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


def record_of(
    request_id: str,
    caller: Caller,
    run: Run,
    report: ReuseReport | None,
    finish: Finish,
    notes: Sequence[str],
    error: Exception | None,
    text: Callable[[Tokens], str],
) -> RequestRecord:
    """The record of a request that ended. It has no report if it never got a slot. `text` is the vocabulary's."""
    timings, prompt = run.timings, run.job.prompt
    record = RequestRecord(
        id=request_id,
        at=time.time(),
        caller=caller,
        prompt_tokens=prompt.length,
        unread=prompt.length,
        generated=timings.num_generated,
        drafted=timings.num_drafted,
        accepted=timings.num_accepted,
        drafted_from=dict(timings.drafted_from),
        finish=finish.value,
        error=str(error) if error is not None else None,
        waited_ms=timings.waited_ms,
        waited_for=timings.waited_for,
        prompt_ms=timings.prompt_ms,
        first_token_ms=timings.first_token_ms,
        generation_ms=timings.generation_ms,
        line=f"read none of {prompt.length:,}",
        notes=tuple(notes),
        namespace=run.job.namespace,
    )
    if report is None:
        return record
    report = report.read_up_to(timings.num_read)
    record = replace(
        record,
        reused=report.reused,
        computed=report.computed,
        unread=report.unread,
        source=report.source,
        reasons={part.reason.value: part.num_tokens for part in report.rereads},
        line=report.line(),
        images=report.image_lines,
        origins=report.count(0, report.prompt_tokens),
        spans=Spans.of(prompt, report),
    )
    return _with_difference(record, prompt, report, text)


def _with_difference(
    record: RequestRecord, prompt: Prompt, report: ReuseReport, text: Callable[[Tokens], str]
) -> RequestRecord:
    """Says where the prompt left the longest known prefix, with the text before and after.

    For an edit, and for a header that changed, even if none of the text after the change was known.
    """
    in_header = report.known < (prompt.header_end or 0)
    if not (report.before.size and report.after.size and (report.is_edit or in_header)):
        return record
    shared = text(prompt.tokens[max(0, report.known - _SHARED_TOKENS) : report.known])
    before, after = text(report.before), text(report.after)
    is_told = in_header and any(note.startswith(VOLATILE) for note in record.notes)  # by the learner, who knows better
    advice = suggest(before, after, shared) if in_header and not is_told else None
    if not report.is_edit and advice is None and not is_told:
        return record
    return replace(
        record,
        differs_at=report.known,
        difference=VOLATILE if is_told else explain_difference(before, after, in_header, shared),
        before=before,
        after=after,
        notes=(*record.notes, advice) if advice else record.notes,
    )


@dataclass
class Counts:
    """Totals of one tenant and model since the start. Written on the event loop, but for `read_ahead_tokens`."""

    reused_tokens: int = 0
    computed_tokens: Counter[str] = field(default_factory=Counter)  # by reason
    generated_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: Counter[str] = field(default_factory=Counter)  # of those, by where they were copied from
    read_ahead_tokens: int = 0  # written on the engine's thread
    prompt_seconds: float = 0.0
    generation_seconds: float = 0.0
    saved_seconds: float = 0.0
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

    def add(self, record: RequestRecord) -> None:
        if record.caller != PREWARM:
            self.saved_seconds += record.saved_ms / 1000
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


Watcher = Callable[[RequestRecord], None]


class RequestLog:
    """The latest records, of which the oldest is dropped when it is full, and the counts of all by tenant and model."""

    def __init__(self, size: int, *, names_models: bool = False) -> None:
        """With `names_models`, a line names the model: there are several that it may be of."""
        self.size = size
        self._names_models = names_models
        self.started_at = time.time()
        self.callers = Callers()
        self.counts: defaultdict[tuple[str, str], Counts] = defaultdict(Counts)  # by tenant and model
        self.refused: defaultdict[str, Counter[str]] = defaultdict(Counter)  # by tenant, and HTTP status
        self.watchers: list[Watcher] = []  # called with each record, on an event loop
        self._records: deque[RequestRecord] = deque(maxlen=size)
        self._logged_notes: LruCache[tuple[str, str], bool] = LruCache(max_entries=_LOGGED_NOTES)

    @property
    def records(self) -> list[RequestRecord]:
        """All records, the newest first."""
        return list(reversed(self._records))

    def log_spared(self) -> None:
        """One line with the sums of all tenants and models, unless nobody has asked anything."""
        every = [*self.counts.values()]
        reused = sum(counts.reused_tokens for counts in every)
        total = Sums(
            requests=sum(counts.requests.total() for counts in every),
            prompt_tokens=reused + sum(counts.computed_tokens.total() for counts in every),
            reused=reused,
            saved_ms=round(1000 * sum(counts.saved_seconds for counts in every), 3),
        )
        if total.requests:
            requests = "1 request" if total.requests == 1 else f"{total.requests:,} requests"
            line = f"spared since the start: {total}, of {total.prompt_tokens:,} tokens in {requests}"
            logger.info("%s", line, extra={"fields": {"spared": asdict(total)}})

    def forget(self, is_meant: Callable[[str], bool] = lambda _: True, model: str | None = None) -> None:
        """Drops the records of the namespaces that are meant: they quote prompts. Counts stay. On the event loop."""
        is_kept = lambda each: model not in (None, each.model) or not is_meant(each.namespace)  # noqa: E731
        self._records = deque(filter(is_kept, self._records), self.size)
        self.callers.forget(is_meant, model)

    def add(self, record: RequestRecord) -> None:
        """Keeps, counts and logs a request that ended, and tells the watchers."""
        self._records.append(record)
        tenant = owner_of(record.namespace)
        self.counts[tenant, record.model].add(record)
        if record.caller != PREWARM:
            sums = Sums(record.at, 1, record.prompt_tokens, record.reused, record.saved_ms, record.origins)
            self.callers.add(record.caller, record.namespace, record.model, sums)
        for watch in [*self.watchers]:
            watch(record)
        new_notes = [note for note in record.notes if self._logged_notes.get((tenant, note)) is None]
        for note in new_notes:  # what is the same with every request is said once
            self._logged_notes.put((tenant, note), True)
        model = record.model if self._names_models else ""
        line = " · ".join(filter(None, [str(record.caller), model, record.line, record.ending, *new_notes]))
        logger.info("%s", line, extra={"fields": {"request": record.logged()}})

    def add_refused(self, line: str, status: int, error: str, namespace: str, finish: str = REFUSED) -> None:
        """Keeps a request that was refused, or whose client left, before it became a job."""
        record = RequestRecord(
            "", time.time(), finish=finish, status=status, error=error, line=line, namespace=namespace
        )
        self._records.append(record)
