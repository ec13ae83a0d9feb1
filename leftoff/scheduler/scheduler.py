"""Continuous batching: many runs over few slots, one batch per step.

A step decodes one token of every reply and a chunk of one prompt, or of several short ones, so that replies keep
streaming while prompts are read. Chunks end where the cache wants a snapshot. Runs whose prompts share a prefix wait
until the first of them has read it. Out of KV cells, the run that came last is preempted until another has ended.

All methods but `submit`, `read_ahead`, `cancel`, `wake` and `wait` belong to the engine's thread.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

from leftoff.cache.cache import Cache
from leftoff.drafts.drafter import Drafter
from leftoff.drafts.trail import Draft
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.errors import CancelledError, EngineError, InputError, NoRoomError
from leftoff.scheduler.admission import Admission
from leftoff.scheduler.batcher import Batcher, Limits, Part, SamplingThreads
from leftoff.scheduler.gate import Gate
from leftoff.scheduler.job import Finish, QueueFullError
from leftoff.scheduler.run import Run
from leftoff.scheduler.waking import Waking

logger = logging.getLogger(__name__)

_MAX_AHEAD = 4


class Scheduler:
    """Drives one engine through its cache."""

    def __init__(
        self,
        engine: LlamaEngine,
        cache: Cache,
        limits: Limits | None = None,
        drafter: Drafter | None = None,
        gate: Gate | None = None,
    ) -> None:
        self.engine = engine
        self.cache = cache
        self.limits = limits or Limits()
        self.gate = gate or Gate()
        self.waking = Waking(engine, cache, self.gate, self.wake, self.limits.queue, drafter)
        self.runs: list[Run] = []
        self.drafter = drafter
        self._batcher = Batcher(engine, cache.costs, self.limits, drafter, self.wake)
        self._admission = Admission(cache, self.limits, self.wake)
        self._sampling = SamplingThreads(engine)
        self._waiting: deque[Run] = deque()
        self._is_full = False  # no run starts until another has ended
        self._ahead: deque[Run] = deque(maxlen=_MAX_AHEAD)
        self._reading_ahead: Run | None = None
        self._changed = threading.Condition()
        self._step = 0
        self._woken = False
        self._is_closed = False

    # --- from any thread

    def submit(self, run: Run) -> None:
        """Puts a run at the end of the queue."""
        if run.prompt.length == 0:
            raise InputError("the prompt is empty")
        if run.prompt.length >= (cells := self.engine.memory.num_cells):
            raise NoRoomError(f"the prompt has {run.prompt.length} tokens; the context holds {cells}")
        with self._changed:
            if len(self._waiting) >= self.limits.queue:
                raise QueueFullError(f"{len(self._waiting)} requests are waiting already: try again later")
            run.prompt = self.cache.known_as(run.prompt)
            is_late = self._is_closed
            if not is_late:
                self._waiting.append(run)
            if self._reading_ahead is not None:  # it gives way in the middle of its decode
                self._reading_ahead.is_cancelled = True
                self.engine.cancel()
        if is_late:
            run.end(Finish.CANCELLED, None)
        self.wake()

    def read_ahead(self, run: Run) -> None:
        """Reads a prompt when there is nothing else to do. Of too many, the oldest are dropped."""
        run.prompt = self.cache.known_as(run.prompt)
        with self._changed:
            self._ahead.append(run)
        self.wake()

    def cancel(self, run: Run) -> None:
        """Ends a run wherever it is, within one step."""
        run.is_cancelled = True
        self.wake()

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify()

    def wait(self, seconds: float) -> None:
        """Sleeps until there is something to do, or somebody calls `wake`."""
        with self._changed:
            is_idle = not self.waking.errands and all(run.waits_for_disk for run in self._waiting)
            if not self._woken and (is_idle or self.waking.is_shut or self._batcher.waits):
                self._changed.wait(seconds)
            self._woken = False

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def waiting(self) -> tuple[Run, ...]:
        if not self._waiting:  # asked several times in each step: without the lock
            return ()
        with self._changed:
            return tuple(self._waiting)

    # --- on the engine's thread

    def step(self) -> bool:
        """Does one batch of work. False if there was none."""
        self._step += 1
        self._sweep()
        self._admit()
        self._sweep()  # a run admitted just now has cancelled the one read ahead: else its own decode would end
        has_run_errand = self.waking.run_errand()
        if self._ahead and not self.runs and not self._waiting and not self.engine.is_asleep and not self.gate.blocks():
            self._start_ahead(self._ahead.popleft())
        elif self._reading_ahead is not None and self.gate.blocks():
            self._end(self._reading_ahead, Finish.CANCELLED)
        if self.runs:
            self._decode()
            self.waking.worked_at = time.monotonic()
            self._sweep()
            return not self._batcher.waits or has_run_errand
        return has_run_errand

    def tidy(self) -> None:
        """Writes behind and makes memory ready, until a request comes. Called when there is nothing to do."""
        self.cache.save_idle(lambda: bool(self._waiting))
        if self.drafter is not None:
            self.drafter.tidy(lambda: bool(self._waiting))
        while not self._waiting and self.engine.context.arena.refill():
            pass
        if not self.is_busy and not self.engine.is_asleep and self.gate.gives_way(self.waking.idle_s):
            self.waking.sleep()

    @property
    def is_busy(self) -> bool:
        """Something has begun and has not ended, or may begin now."""
        may_begin = not self.waking.is_shut and self._is_wanted()
        return bool(self.runs) or may_begin or any(run.is_due for run in self.waiting)

    def fail(self, runs: Sequence[Run], error: Exception) -> None:
        """After an error outside of any one reply: runs that have a slot end with it."""
        for run in list(runs):
            self._end(run, Finish.FAILED, error)

    def forget_ahead(self, is_meant: Callable[[str], bool]) -> None:
        """Reads nothing ahead any more of the namespaces that are meant."""
        with self._changed:
            self._ahead = deque((run for run in self._ahead if not is_meant(run.job.namespace)), _MAX_AHEAD)
            if self._reading_ahead is not None and is_meant(self._reading_ahead.job.namespace):
                self._reading_ahead.is_cancelled = True
        self._sweep()

    def close(self) -> None:
        """Cancels all runs and errands, and those that come from now on."""
        with self._changed:
            self._is_closed = True
        for run in (*self.waiting, *self.runs):
            run.is_cancelled = True
        self.waking.errands.close()
        self._sweep()

    def _admit(self) -> None:
        """Admits what waits, and then what was handed over meanwhile: one batch reads the prompts of both."""
        num_runs = len(self.runs)
        self._admit_waiting()
        if len(self.runs) > num_runs:
            time.sleep(0)  # gives up the GIL, for which requests wait that came at the same time
            self._admit_waiting()

    def _admit_waiting(self) -> None:
        """Gives slots to waiting runs, in order; a run that is worth holding back lets later ones pass."""
        self._open()
        if self._is_full or self.engine.is_asleep:  # asleep also if a run has come since the gate was asked
            return
        for run in self.waiting:
            if not self.cache.sequences.num_free_slots or len(self.runs) >= self.limits.at_once:
                return
            if not self._hold_back(run) and not self._start(run):
                return

    def _hold_back(self, run: Run) -> bool:
        if self.waking.is_shut and not run.is_due:
            return True
        try:
            return self._admission.hold_back(run, self.runs)
        except Exception as error:
            self._refuse(run, error)
            return True

    def _is_wanted(self) -> bool:
        return any(not run.is_cancelled for run in self.waiting) or bool(self.waking.errands)

    def _open(self) -> None:
        """Lets the gate open for what waits. If the model cannot be loaded, whoever waits is told why."""
        try:
            if self.waking.ask(self._is_wanted):
                for run in self.waiting:
                    run.is_due = True
        except Exception as error:
            for run in self.waiting:
                self._end(run, Finish.FAILED, error)

    def _start_ahead(self, run: Run) -> None:
        plan = self.cache.plan(run.prompt, run.job.namespace)
        enough = self.limits.worth_going_on if plan.goes_on else self.limits.worth_reading_ahead
        if self.cache.kept_length(run.prompt) - plan.resume < enough:
            run.end(Finish.CANCELLED, None)
            return
        with self._changed:
            if self._waiting:  # submitted meanwhile, when there was nothing to interrupt
                self._ahead.appendleft(run)
                return
            self._reading_ahead = run
        self._start(run)
        if not self.runs:
            self._end_reading_ahead()

    def _end_reading_ahead(self) -> None:
        """Forgets the run that reads ahead: from here on no request interrupts the engine for it."""
        with self._changed:
            self._reading_ahead = None
            self.engine.context.forget_cancel()

    def _start(self, run: Run) -> bool:
        """False if other runs hold the cells it needs: it waits until one of them has ended."""
        is_resumed = run.is_paused
        if not is_resumed:
            run.timings.started = time.perf_counter()
        try:
            run.prepare(self.engine)
            turn = self.cache.begin(run.prompt, run.job.namespace, run.fetch, reads_all=run.reads_all)
        except Exception as error:
            if isinstance(error, NoRoomError) and self.runs:
                return False
            self._refuse(run, error)
            return True
        assert turn is not None
        self._leave_queue(run)
        run.start(turn)
        run.last_served = self._step
        self.runs.append(run)
        if not is_resumed:
            run.timings.num_read = turn.report.reused
            run.timings.waited_for = self.gate.began(run.timings.waited_ms / 1000, turn.report.reused)
            run.sink.started(turn.report)
            if self.drafter is not None and self.drafter.has_trails:
                run.trail = self.drafter.begin(run.job.namespace, run.prompt.tokens, turn.report.reused)
        if not turn.is_reading:
            run.choose_from_kept(turn.logits)
        return True

    def _decode(self) -> None:
        batch = self._batcher.next(self.runs, self._step)
        parts = batch.parts
        if not parts:
            return
        try:
            self.cache.make_cells(batch.num_tokens)
            is_awaited = self._batcher.is_awaited(batch)
            began = time.perf_counter()
            with self.cache.lock.let_go():
                rows = self.engine.decode([work for _, work in parts], is_awaited=is_awaited)
        except NoRoomError as error:
            self._make_way(error)
            return
        except CancelledError:
            self._start_again(parts)
            return
        except EngineError as error:
            logger.error("a batch failed: %s", error)
            self.fail([run for run, _ in parts], error)
            return
        self._batcher.saw(batch, 1000 * (time.perf_counter() - began), is_awaited=is_awaited)
        kept, sampled = [], []
        for (run, work), row in zip(parts, rows, strict=True):
            kept.append(run.report_progress(work, row))
            if work.logits and not work.num_drafted:
                sampled.append((run, row))
        self._sampling.sample(sampled)
        for run, _ in sampled:
            run.take_sampled()
        if batch.draft is not None:
            run, work = parts[-1]
            parts = [*parts[:-1], (run, self._settle(run, work, rows[-1], batch.draft))]
        # last: the tokens are on their way to those who wait for them while snapshots are taken
        for (run, work), logits in zip(parts, kept, strict=True):
            self.cache.advance(run.turn, work.tokens, logits)

    def _settle(self, run: Run, work: Work, row: int, draft: Draft) -> Work:
        """Verifies the draft of a run. Returns what the engine holds of the work: what was wrong is taken back."""
        num_kept = run.verify(work, row, draft)
        if self.drafter is not None and run.finish is None:
            self.drafter.verified(draft, work.num_drafted, num_kept - (work.tokens.size - work.num_drafted))
        num_held = self.engine.settle(work, num_kept)
        if num_held < num_kept and run.finish is None:
            run.decode_again(work.tokens[num_held:num_kept])
        elif num_held < num_kept:  # the reply ends here: else the next prompt would have to read these tokens again
            with suppress(NoRoomError, CancelledError):
                self.engine.decode([Work(work.seq, work.tokens[num_held:num_kept], logits=False)])
                num_held = num_kept
        return Work(work.seq, work.tokens[:num_held])

    def _make_way(self, error: NoRoomError) -> None:
        """No cells are left: preempts the run that came last, until another has ended."""
        if self.cache.drop_one_idle():
            return  # and try again
        last = self.runs[-1]
        if len(self.runs) > 1:
            self._pause(last)
            self._is_full = True
        elif last.turn.is_reading:
            self._end(last, Finish.FAILED, error)
        else:
            last.finish = Finish.LENGTH

    def _start_again(self, parts: Sequence[Part]) -> None:
        """After a cancelled decode, runs of the batch that lost their state resume from what is kept of them."""
        for run, _ in parts:
            if run is not self._reading_ahead and not self.engine.memory.is_whole(run.turn.seq):
                self._pause(run)

    def _pause(self, run: Run) -> None:
        run.pause()
        self.runs.remove(run)
        self.cache.finish(run.turn)
        self._waiting.appendleft(run)

    def _sweep(self) -> None:
        """Ends runs that were cancelled or have their last token."""
        for run in (*self.waiting, *self.runs):
            if run.is_cancelled:
                self._end(run, Finish.CANCELLED)
            elif run.finish is not None:
                self._end(run, run.finish, run.error)

    def _refuse(self, run: Run, error: Exception) -> None:
        if not isinstance(error, EngineError):
            logger.exception("an unforeseen error at the beginning of a reply")
        self._end(run, Finish.FAILED, error)

    def _end(self, run: Run, finish: Finish, error: Exception | None = None) -> None:
        """Ends a run, wherever it is."""
        if run in self.runs:
            self._leave_slot(run)
        else:
            self._leave_queue(run)
        run.end(finish, error)

    def _leave_slot(self, run: Run) -> None:
        self.runs.remove(run)
        self._is_full = False
        if run is self._reading_ahead:
            run.turn.sequence.ahead_from = run.turn.report.reused
            self._end_reading_ahead()
        self.cache.finish(run.turn)
        if run.timings.num_generated:
            self.cache.costs.saw_reply(run.timings.num_generated)
        if run.trail is not None and self.drafter is not None:
            self.drafter.finish(run.job.namespace, run.trail, run.job.prompt.tokens)

    def _leave_queue(self, run: Run) -> None:
        with self._changed, suppress(ValueError):  # one that is read ahead is not in it
            self._waiting.remove(run)
        self._admission.let_go(run)
