"""Continuous batching: many requests over few slots, one batch per step.

A step decodes one token of every reply and a piece of one prompt, or of several short ones, so that replies keep
streaming while prompts are read. Pieces end where the cache wants a snapshot. Requests that begin alike and start
together wait until the first of them has read what they share. When the context is full, who came last is paused, and
goes on where it was when another has ended.

All methods but `submit`, `cancel` and `wait` belong to the engine's thread.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Sequence

from leftoff.cache.cache import Cache
from leftoff.cache.plan import Plan
from leftoff.cache.tree import common_prefix
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.errors import CancelledError, EngineError, InputError, NoRoomError
from leftoff.scheduler.batcher import Batcher, Limits
from leftoff.scheduler.fetches import Fetches
from leftoff.scheduler.request import Finish, Request
from leftoff.scheduler.run import Run
from leftoff.types import Logits

logger = logging.getLogger(__name__)

_MOST_AHEAD = 4


class QueueFullError(EngineError):
    """More requests are waiting than the server is willing to hold."""


class Scheduler:
    """Drives one engine through its cache."""

    def __init__(self, engine: LlamaEngine, cache: Cache, limits: Limits | None = None) -> None:
        self.engine = engine
        self.cache = cache
        self.limits = limits or Limits()
        self.runs: list[Run] = []
        self._batcher = Batcher(engine, cache.costs, self.limits)
        self._waiting: deque[Request] = deque()
        self._cancelled: set[Request] = set()
        self._held: set[Request] = set()  # waiting for another to read what they share
        self._paused: dict[Request, Run] = {}  # waiting to go on
        self._is_full = False  # nobody starts until somebody ends
        self._fetches = Fetches(cache, self.wake)
        self._ahead: deque[Request] = deque(maxlen=_MOST_AHEAD)
        self._reading_ahead: Request | None = None
        self._changed = threading.Condition()
        self._step = 0
        self._woken = False

    # --- from any thread

    def submit(self, request: Request) -> None:
        if request.prompt.length == 0:
            raise InputError("the prompt is empty")
        if request.prompt.length >= self.engine.memory.num_cells:
            cells = self.engine.memory.num_cells
            raise NoRoomError(f"the prompt has {request.prompt.length} tokens; the context holds {cells}")
        with self._changed:
            if len(self._waiting) >= self.limits.queue:
                raise QueueFullError(f"{len(self._waiting)} requests are waiting already: try again later")
            self._waiting.append(request)
            if self._reading_ahead is not None:  # somebody waits now: it ends in the middle of its decode
                self._cancelled.add(self._reading_ahead)
                self.engine.cancel()
            self._changed.notify()

    def read_ahead(self, request: Request) -> None:
        """Reads a prompt when there is nothing else to do. Of too many, the oldest are left out."""
        with self._changed:
            self._ahead.append(request)
            self._woken = True
            self._changed.notify()

    def cancel(self, request: Request) -> None:
        """Ends a request wherever it is, within one step."""
        with self._changed:
            self._cancelled.add(request)
            self._changed.notify()

    def wake(self) -> None:
        with self._changed:
            self._woken = True
            self._changed.notify()

    def wait(self, seconds: float) -> None:
        """Sleeps until there is something to do, or somebody calls `wake`."""
        with self._changed:
            if not self._woken and not self._cancelled and all(map(self._fetches.is_coming, self._waiting)):
                self._changed.wait(seconds)
            self._woken = False

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def waiting(self) -> tuple[Request, ...]:
        with self._changed:
            return tuple(self._waiting)

    # --- on the engine's thread

    def step(self) -> bool:
        """Does one batch of work. False if there was none."""
        self._step += 1
        self._sweep()
        self._admit()
        self._sweep()  # whoever was admitted has cancelled what is read ahead: not to be cancelled with it
        if not self.runs and not self._waiting and self._ahead:
            self._start_ahead(self._ahead.popleft())
        if self.runs:
            self._decode()
            self._sweep()
            return True
        return False

    def tidy(self) -> None:
        """To be called when there is nothing to do: writes behind, and makes memory ready until a request comes."""
        self.cache.save_idle()
        while not self._waiting and self.engine.context.arena.refill():
            pass

    def fail_all(self, error: Exception) -> None:
        """After an error that nobody foresaw: every running request ends with it, and the next ones find order."""
        for run in list(self.runs):
            self._close(run, Finish.FAILED, error)

    def cancel_all(self) -> None:
        with self._changed:
            self._cancelled.update(self._waiting, (run.request for run in self.runs))
        self._sweep()

    def _admit(self) -> None:
        """Gives slots to waiting requests, in order; those worth holding back let later ones pass."""
        if self._is_full:
            return
        held: list[Request] = []
        try:
            while self._waiting and self.cache.sequences.idle_slots and len(self.runs) < self.limits.at_once:
                request = self._waiting.popleft()
                if self._is_worth_waiting(request) or self._needs_disk(request):
                    held.append(request)
                elif not self._start(request):
                    break
        finally:
            self._waiting.extendleft(reversed(held))

    def _is_worth_waiting(self, request: Request) -> bool:
        """Somebody is reading what this prompt begins with: let him, and fork."""
        for run in self.runs:
            if not run.is_reading or run.request.namespace != request.namespace:
                continue
            common = common_prefix(run.turn.prompt.tokens.tobytes(), request.prompt.tokens.tobytes())
            enough = 1 if request in self._held else self.limits.worth_waiting_tokens
            # the plan is asked last: it is the dear part, and this is asked at every step
            if common - run.turn.position >= enough and common - self._plan(request).resume >= enough:
                run.turn.add_snapshot_position(common)
                self._held.add(request)
                return True
        self._held.discard(request)
        return False

    def _needs_disk(self, request: Request) -> bool:
        self._fetches.begin(request)
        return self._fetches.is_coming(request)

    def _plan(self, request: Request) -> Plan:
        return self.cache.preview(request.prompt, request.namespace)

    def _start_ahead(self, request: Request) -> None:
        plan = self._plan(request)
        enough = self.limits.worth_going_on if plan.goes_on else self.limits.worth_reading_ahead
        if self.cache.kept_length(request.prompt) - plan.resume < enough:
            self._report_end(request, Finish.CANCELLED, None)
            return
        with self._changed:
            if self._waiting:  # somebody came meanwhile, and could not know whom to interrupt
                self._ahead.appendleft(request)
                return
            self._reading_ahead = request
        self._start(request)
        if not self.runs:
            self._end_reading_ahead()

    def _end_reading_ahead(self) -> None:
        """From here on nobody interrupts the engine for its sake."""
        with self._changed:
            self._reading_ahead = None
            self.engine.context.forget_cancel()

    def _start(self, request: Request) -> bool:
        """False if running replies hold the cells it needs: it waits for one of them to end."""
        paused = self._paused.get(request)
        if paused is None:
            request.timings.started = time.perf_counter()
        try:
            run = paused or Run(request, self.engine)
            turn = self.cache.begin(request.prompt, request.namespace, self._fetches.brought(request))
        except Exception as error:
            if isinstance(error, NoRoomError) and self.runs:
                self._waiting.appendleft(request)
                return False
            if not isinstance(error, EngineError):
                logger.exception("an unforeseen error at the beginning of a reply")
            self._forget(request)
            self._report_end(request, Finish.FAILED, error)
            return True
        assert turn is not None
        run.turn = turn
        run.last_served = self._step
        self.runs.append(run)
        self._forget(request)
        if paused is None:
            request.sink.started(turn.report)
        if turn.logits is not None:
            run.choose_from_kept(turn.logits)
        return True

    def _decode(self) -> None:
        batch = self._batcher.next(self.runs, self._step)
        if not batch:
            return
        runs, works = zip(*batch, strict=True)
        num_tokens = sum(work.tokens.size for work in works)
        try:
            self.cache.make_cells(num_tokens)
            began = time.perf_counter()
            rows = self.engine.decode(works)
        except NoRoomError as error:
            self._make_way(error)
            return
        except CancelledError:
            self._start_again(runs)
            return
        except EngineError as error:
            self._fail(runs, error)
            return
        elapsed_ms = 1000 * (time.perf_counter() - began)
        if num_tokens > len(works):
            self.cache.costs.saw_prefill(num_tokens, elapsed_ms)
        else:
            self.cache.costs.saw_step(elapsed_ms)
        kept = [self._report_progress(run, work, row) for run, work, row in zip(runs, works, rows, strict=True)]
        for run, work, row in zip(runs, works, rows, strict=True):
            if work.logits:
                run.choose(row)
        # last: the tokens are on their way to those who wait for them while snapshots are taken
        for run, work, logits in zip(runs, works, kept, strict=True):
            self.cache.advance(run.turn, work.tokens, logits)

    def _report_progress(self, run: Run, work: Work, row: int) -> Logits | None:
        """The logits at the end of the prompt: a constraint will write its mask over those of the engine."""
        if not run.is_reading:
            return None
        if run.request.timings.num_generated == 0:
            run.request.sink.progress(run.turn.position + work.tokens.size)
        return self.engine.logits(row).copy() if work.logits else None

    def _make_way(self, error: NoRoomError) -> None:
        """The context is full of what runs: who came last waits until another has ended, and goes on then."""
        if self.cache.drop_one_idle():
            return  # and try again
        last = self.runs[-1]
        if len(self.runs) > 1:
            self._pause(last)
            self._is_full = True
        elif last.is_reading:
            self._close(last, Finish.FAILED, error)
        else:
            last.finish = Finish.LENGTH

    def _start_again(self, runs: Sequence[Run]) -> None:
        """Who was in one batch with what was cancelled, and lost its state, goes on from what is kept."""
        for run in runs:
            if run.request is not self._reading_ahead and not self.engine.memory.is_whole(run.turn.seq):
                self._pause(run)

    def _pause(self, run: Run) -> None:
        run.pause()
        self.runs.remove(run)
        self.cache.finish(run.turn)
        self._paused[run.request] = run
        self._waiting.appendleft(run.request)

    def _fail(self, runs: Sequence[Run], error: EngineError) -> None:
        logger.error("a batch failed: %s", error)
        for run in runs:
            self._close(run, Finish.FAILED, error)

    def _sweep(self) -> None:
        """Closes what has ended or was cancelled."""
        if not self._cancelled and all(run.finish is None for run in self.runs):
            return
        with self._changed:
            cancelled, self._cancelled = self._cancelled, set()
            dropped = [request for request in self._waiting if request in cancelled]
            for request in dropped:
                self._waiting.remove(request)
                self._forget(request)
        for request in dropped:
            self._report_end(request, Finish.CANCELLED, None)
        for run in list(self.runs):
            if run.request in cancelled:
                self._close(run, Finish.CANCELLED)
            elif run.finish is not None:
                self._close(run, run.finish, run.error)

    def _close(self, run: Run, finish: Finish, error: Exception | None = None) -> None:
        self.runs.remove(run)
        self._is_full = False
        if run.request is self._reading_ahead:
            self._end_reading_ahead()
        self.cache.finish(run.turn)
        run.close()
        self._report_end(run.request, finish, error)

    def _forget(self, request: Request) -> None:
        """It waits no longer."""
        self._held.discard(request)
        self._fetches.forget(request)
        self._paused.pop(request, None)

    def _report_end(self, request: Request, finish: Finish, error: Exception | None) -> None:
        request.timings.finished = time.perf_counter()
        try:
            request.sink.finished(finish, request.timings, error)
        except Exception:  # its own matter: others go on
            logger.exception("the end of a reply could not be told")
