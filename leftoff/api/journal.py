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

    def add(
        self,
        request_id: str,
        report: ReuseReport,
        finish: Finish,
        timings: Timings,
        notes: tuple[str, ...] = (),
        namespace: str = "",
    ) -> Record:
        differs = bool(report.before.size and report.after.size)  # not: a known prompt that ends here
        record = Record(
            id=request_id,
            at=time.time(),
            prompt_tokens=report.prompt_tokens,
            reused=report.reused,
            computed=report.computed,
            generated=timings.num_generated,
            source=report.source,
            reasons={part.reason.value: part.num_tokens for part in report.rereads},
            differs_at=report.known if differs else None,
            before=self._text(report.before) if differs else "",
            after=self._text(report.after) if differs else "",
            finish=finish.value,
            waited_ms=timings.waited_ms,
            # a request that was cancelled while its prompt was read has no first token
            prompt_ms=timings.prompt_ms if timings.first_token else 1000 * (timings.finished - timings.started),
            generation_ms=timings.generation_ms if timings.first_token else 0.0,
            line=report.line(),
            notes=notes,
            namespace=namespace,
        )
        self._records.append(record)
        return record

    def _text(self, tokens: Tokens) -> str:
        return self._vocabulary.detokenize(tokens).decode("utf-8", "replace")
