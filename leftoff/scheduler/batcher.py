"""Chooses what the next batch decodes, and samples from what it has decoded."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter

from leftoff.cache.costs import Costs
from leftoff.drafts.drafter import Drafter
from leftoff.drafts.guesses import Reply
from leftoff.drafts.trail import Draft
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.machine import num_cores
from leftoff.scheduler.adapter_turns import AdapterTurns
from leftoff.scheduler.run import Run

_MAX_THREADS = 8
_LARGE_VOCABULARY = 50_000  # tokens: with fewer, waking a thread takes longer than sampling
_MAX_LATE_TOKENS = 8192
_MIN_SAMPLED = 4  # replies worth waking threads for

Part = tuple[Run, Work]
Row = tuple[Run, int]  # a run, and the row of its logits in the last batch


@dataclass(frozen=True)
class Batch:
    """The next tokens of some runs, to be decoded in one step. The last part ends in the draft, if there is one."""

    parts: Sequence[Part]
    draft: Draft | None = None

    @cached_property
    def num_tokens(self) -> int:
        return sum([work.tokens.size for _, work in self.parts])


@dataclass(frozen=True)
class Limits:
    """Limits of a step and of the queue."""

    chunk_tokens: int = 512
    chunk_ms: float = 150.0  # time of a chunk while replies wait for their next token
    lone_chunk_ms: float = 350.0  # time of a longer chunk while nobody waits: a GPU idles between chunks
    min_chunk_tokens: int = 64
    worth_waiting_tokens: int = 64  # fewest tokens shared with a prompt being read, beyond the cached prefix
    worth_reading_ahead: int = 4  # fewest tokens worth reading ahead
    worth_going_on: int = 16  # the same, where a slot already ends at the resume point
    queue: int = 512
    at_once: int = 255  # requests in one batch


class Batcher:
    """Builds batches from running replies and chunks of prompts (chunked prefill). Decodes none of them itself."""

    def __init__(
        self,
        engine: LlamaEngine,
        costs: Costs,
        limits: Limits,
        drafter: Drafter | None = None,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """`wake` is called when a picture has been encoded that a prompt waits for."""
        self._wake = wake
        self._engine = engine
        self._drafter = drafter
        self._costs = costs
        self._limits = limits
        self._is_on_device = engine.is_on_device
        self._was_picture = False
        self.waits = False  # for pictures that are being encoded: there was nothing to decode
        self._late_tokens, self._late_ms = 0, 0.0  # of chunks of prompts that nobody has waited for yet
        self._turns = AdapterTurns() if engine.settings.loras else None

    def next(self, runs: Sequence[Run], step: int) -> Batch:
        """One token of every reply, a chunk of the prompt served longest ago, and other prompts if they are short.

        Or one picture: it is alone in its batch, and of two batches in a row at most one is a picture while others run.
        With adapters, all runs of a batch are read with the same set, which it uses from then on.
        """
        batch = self._next(runs, step) if self._turns is None else self._next_of_turns(self._turns, runs, step)
        self.waits = not batch.parts
        return batch

    def _next_of_turns(self, turns: AdapterTurns, runs: Sequence[Run], step: int) -> Batch:
        for group in turns.groups([run for run in runs if run.finish is None]):
            adapters = group[0].adapters
            if (batch := self._next(group, step)).parts:
                turns.serve(adapters)
                self._engine.use(adapters)
                return batch
        return Batch(())

    def _next(self, runs: Sequence[Run], step: int) -> Batch:
        reading: list[Run] = []
        parts: list[Part] = []
        for run in runs:
            if run.finish is not None:
                continue
            if run.turn.is_reading:
                reading.append(run)
                run.encode_pictures(self._wake)
            else:
                parts.append((run, run.reply_work()))
        if not reading:
            return self._with_draft(parts)
        limits = self._limits
        most = self._most_tokens(self._engine.batch_tokens - len(parts))
        # so many tokens of prompts delay running replies by no more than `chunk_ms`, or than a chunk does in any case
        quick_ms = max(limits.chunk_ms, self._costs.cut_ms)
        quick = min(most, max(limits.min_chunk_tokens, int(quick_ms * self._costs.prefill_tokens_per_ms)))
        room = limit = quick if parts else most
        gives_way, self._was_picture = self._was_picture and bool(parts), False
        free_cells = self._engine.memory.free_cells if len(reading) > 1 else 0
        for run in sorted(reading, key=attrgetter("last_served")):
            work = run.prompt_work(limit)
            if work is None:
                continue
            if work.picture is not None:
                if gives_way:
                    continue
                self._was_picture, run.last_served = True, step
                return Batch([(run, work)])
            if work.tokens.size <= room:
                gives_way = True  # to what is in the batch already
                parts.append((run, work))
                run.last_served = step
                # a second prompt keeps the others waiting, and must leave them their cells
                room = min(room, quick, free_cells) - work.tokens.size
        return Batch(parts)

    def _with_draft(self, parts: Sequence[Part]) -> Batch:
        """Adds a draft to the reply with the longest match, if that pays and takes only cells that are free.

        It goes last, so that what is taken back leaves no hole between cells. A recurrent state is drafted for only if
        its reply is alone: llama.cpp computes the sequences of such a model together as far as all have tokens, and
        what is left of the longest in a second pass.
        """
        drafter, memory = self._drafter, self._engine.memory
        batch = Batch(parts)
        if drafter is None or not parts or (memory.has_state and len(parts) > 1):
            return batch
        num_tokens = batch.num_tokens
        room = min(self._engine.batch_tokens, memory.free_cells) - num_tokens
        best: tuple[Run, Work, Draft] | None = None
        for run, work in parts:
            if run.trail is None or (best is not None and run.trail.length <= best[2].length):
                continue
            num_others = num_tokens - work.tokens.size
            most = min(room, run.most_drafted)
            draft = drafter.draft(run.trail, most, num_sure=work.tokens.size, num_others=num_others)
            if draft is not None and (drafted := run.work_with(draft)).num_drafted:
                best = run, drafted, draft
        if drafter.guesses and len(parts) == 1:
            best = self._with_guess(*parts[0], room, best[2].rate if best else 0.0) or best
        if best is None:
            return batch
        run, work, draft = best
        return Batch([*(part for part in parts if part[0] is not run), (run, work)], draft)

    def _with_guess(self, run: Run, work: Work, room: int, rate: float) -> tuple[Run, Work, Draft] | None:
        """Adds a draft that is guessed to a reply that is alone, if that pays more than `rate`."""
        assert self._drafter is not None
        num_left = min(run.most_drafted, self._costs.reply_tokens)
        reply = Reply(run.job.namespace, run.turn, work, num_left)
        draft = self._drafter.guess(reply, min(room, run.most_drafted), rate)
        if draft is None or not (drafted := run.work_with(draft)).num_drafted:
            return None
        return run, drafted, draft

    def is_awaited(self, batch: Batch) -> bool:
        """A logit, a snapshot or the end of a prompt waits for the batch; or too many tokens were not timed yet."""
        is_needed = any(work.logits or run.turn.ends_chunk(work.tokens.size) for run, work in batch.parts)
        return is_needed or self._late_tokens + batch.num_tokens >= _MAX_LATE_TOKENS

    def saw(self, batch: Batch, ms: float, *, is_awaited: bool = True) -> None:
        """Learns from the time that a batch took; of one that was not awaited, together with those that follow it."""
        self._late_tokens += batch.num_tokens
        self._late_ms += ms
        if is_awaited:
            self._learn(batch, self._late_tokens, self._late_ms)
            self._late_tokens, self._late_ms = 0, 0.0

    def _learn(self, batch: Batch, num_tokens: int, ms: float) -> None:
        num_parts = len(batch.parts)
        if self._turns is not None and self._turns.has_switched:
            expected = self._costs.prefill_ms(num_tokens) if num_tokens > num_parts else self._costs.step_ms
            self._turns.saw_switch(ms - expected)
            return
        if self._drafter is not None and num_parts == 1 and (batch.draft is not None or num_tokens == 1):
            self._drafter.times.saw(num_tokens, ms)
        if batch.draft is not None:
            return
        memory = self._engine.memory
        num_cells = memory.num_cells - memory.free_cells
        if num_tokens > num_parts:
            self._costs.saw_prefill(num_tokens, ms, num_cells)
        else:
            self._costs.saw_step(ms, num_parts, num_cells)

    def _most_tokens(self, room: int) -> int:
        """Tokens of prompts in one batch: a chunk, or on a GPU as many as take `lone_chunk_ms`."""
        chunk_tokens = self._limits.chunk_tokens
        if not self._is_on_device:
            return min(room, chunk_tokens)
        quick = int(self._limits.lone_chunk_ms * self._costs.prefill_tokens_per_ms)
        return min(room, max(1, min(room, quick) // chunk_tokens) * chunk_tokens)


class SamplingThreads:
    """Samples the next tokens of many replies at once; without threads on few cores, or for a small vocabulary.

    With a vocabulary of 150,000 tokens a sampler takes about half a millisecond: for sixteen replies, half as long as a
    GPU takes for the batch itself. Samplers know nothing of each other, and llama.cpp runs without the GIL.
    """

    def __init__(self, engine: LlamaEngine) -> None:
        self._engine = engine
        num_threads = min(_MAX_THREADS, num_cores() // 2)
        is_worth_it = num_threads > 1 and engine.model.vocabulary.size >= _LARGE_VOCABULARY
        self._threads = ThreadPoolExecutor(num_threads, "leftoff-sampling") if is_worth_it else None
        self._num_threads = num_threads

    def sample(self, rows: Sequence[Row]) -> None:
        """Samples a token for each run. Nothing is told to anybody yet: `Run.take_sampled` does that."""
        if self._threads is None or len(rows) < _MIN_SAMPLED:
            _sample_all(rows)
            return
        self._engine.logits(rows[0][1])  # llama.cpp sorts the rows when it is asked for the first one
        num_shares = min(self._num_threads, len(rows))
        shares = [rows[first::num_shares] for first in range(num_shares)]
        others = [self._threads.submit(_sample_all, share) for share in shares[1:]]
        _sample_all(shares[0])
        wait(others)


def _sample_all(rows: Sequence[Row]) -> None:
    for run, row in rows:
        run.sample(row)
