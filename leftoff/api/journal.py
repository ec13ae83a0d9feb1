"""The last reuse reports, with words: what was reused, why the rest was read, and the text on both sides."""

import time
from collections import deque
from dataclasses import asdict, dataclass

from leftoff.cache.report import ReuseReport
from leftoff.core import Tokens
from leftoff.engine.vocabulary import Vocabulary
from leftoff.scheduler.request import Finish, Timings


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
    before: str
    after: str
    finish: str
    waited_ms: float
    prompt_ms: float
    generation_ms: float
    line: str
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


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

    def add(
        self, request_id: str, report: ReuseReport, finish: Finish, timings: Timings, notes: tuple[str, ...]
    ) -> Record:
        before, after = self._text(report.before), self._text(report.after)
        record = Record(
            id=request_id,
            at=time.time(),
            prompt_tokens=report.prompt_tokens,
            reused=report.reused,
            computed=report.computed,
            generated=timings.num_generated,
            source=report.source,
            reasons={part.reason.value: part.num_tokens for part in report.rereads},
            differs_at=report.known if report.before.size else None,
            before=before,
            after=after if report.before.size else "",
            finish=finish.value,
            waited_ms=timings.waited_ms,
            prompt_ms=timings.prompt_ms,
            generation_ms=timings.generation_ms,
            line=report.line(),
            notes=notes,
        )
        self._records.append(record)
        return record

    def _text(self, tokens: Tokens) -> str:
        return self._vocabulary.detokenize(tokens).decode("utf-8", "replace")
