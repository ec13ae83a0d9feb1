"""The scheduler wakes its model only behind the gate, and lets it sleep only when nothing has begun."""

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from leftoff.cache.cache import Cache
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.model import Model
from leftoff.scheduler.gate import Gate
from leftoff.scheduler.job import Finish
from leftoff.scheduler.scheduler import Scheduler
from tests.factory import model_path
from tests.scheduler.recorder import Recorder, ask, prompt, run


class Door(Gate):
    """A gate that the test opens and shuts."""

    def __init__(self) -> None:
        super().__init__()
        self.name = "big"
        self.is_open = True
        self.is_awaited = False
        self.calls: list[str] = []

    def admits(self) -> bool:
        self.calls.append("asked")
        return self.is_open

    def blocks(self) -> bool:
        return self.is_awaited

    def gives_way(self, idle_s: float) -> bool:  # noqa: ARG002
        return self.is_awaited

    def withdraw(self) -> None:
        self.calls.append("withdrawn")

    def slept(self) -> None:
        super().slept()
        self.calls.append("slept")


@contextmanager
def behind(door: Gate, path: Path | None = None, num_cells: int = 512) -> Iterator[Scheduler]:
    model = Model(path or model_path("qwen35"), may_sleep=True)
    with LlamaEngine(model, ContextSettings(num_cells=num_cells, num_sequences=2, threads=1)) as engine:
        yield Scheduler(engine, Cache(engine.memory, num_slots=2, budget_bytes=1 << 26), gate=door)


def test_a_model_that_sleeps_is_woken_by_nothing_but_what_the_gate_admits() -> None:
    door = Door()
    with behind(door) as scheduler:
        tokens = prompt(scheduler, 200, seed=1)
        ask(scheduler, tokens)
        run(scheduler)
        scheduler.waking.sleep()
        door.is_open = False
        _, reply = ask(scheduler, tokens)
        assert scheduler.cache.load_sequence(tokens, "") is not None
        assert not scheduler.step()
        assert scheduler.engine.is_asleep
        door.is_open = True
        run(scheduler)
        assert reply.report is not None
        assert reply.report.reused >= 199


def test_what_comes_while_nobody_seems_to_wait_does_not_begin_before_the_model_is_awake(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a context that is closed, llama.cpp would end the process."""
    with behind(Door()) as scheduler:
        tokens, waking = prompt(scheduler, 200, seed=1), scheduler.waking
        came: list[tuple[Recorder, Future[bool]]] = []
        ask(scheduler, tokens)
        run(scheduler)
        waking.sleep()
        looks = waking.ask

        def ask_late(is_wanted: Callable[[], bool]) -> bool:
            was_woken = looks(is_wanted)
            if not came:  # between the look at those who wait and their beginning
                came.append((ask(scheduler, tokens)[1], waking.errands.add(lambda: scheduler.engine.is_asleep)))
            return was_woken

        monkeypatch.setattr(waking, "ask", ask_late)
        assert not scheduler.step()
        assert scheduler.engine.is_asleep
        run(scheduler)
        ((reply, errand),) = came
        assert reply.report is not None
        assert reply.report.reused >= 199
        assert errand.result(0) is False


def test_who_cannot_be_loaded_asks_the_gate_again_before_the_next_attempt(tmp_path: Path) -> None:
    door, path = Door(), Path(shutil.copy(model_path("qwen35"), tmp_path / "own.gguf"))
    with behind(door, path) as scheduler:
        scheduler.waking.sleep()
        moved = path.rename(tmp_path / "moved.gguf")
        replies = [ask(scheduler, prompt(scheduler, 20, seed=seed))[1] for seed in range(3)]
        load = scheduler.waking.load()
        door.calls.clear()
        run(scheduler)
        assert [(reply.finish, "no model file" in str(reply.error)) for reply in replies] == [(Finish.FAILED, True)] * 3
        assert "no model file" in str(load.exception())
        assert door.calls == ["asked", "slept"], "one attempt for all who have waited"
        moved.rename(path)
        _, reply = ask(scheduler, prompt(scheduler, 20, seed=1))
        run(scheduler)
        assert reply.finish is Finish.LENGTH


def test_what_nobody_waits_for_any_more_is_not_loaded() -> None:
    door = Door()
    with behind(door) as scheduler:
        scheduler.waking.sleep()
        door.is_open = False
        waiting, _ = ask(scheduler, prompt(scheduler, 20, seed=1))
        load = scheduler.waking.load()
        scheduler.step()
        scheduler.cancel(waiting)
        scheduler.step()
        assert door.calls[-1] == "asked", "there is one who waits"
        load.cancel()
        scheduler.step()
        assert door.calls[-1] == "withdrawn"
        assert scheduler.engine.is_asleep


def test_a_load_ends_when_the_last_who_waits_leaves() -> None:
    """All of them leave in the middle of the load: when llama.cpp tells how far it is."""
    door = Door()
    with behind(door) as scheduler:
        scheduler.waking.sleep()
        waiting, reply = ask(scheduler, prompt(scheduler, 20, seed=1))
        wake, fractions = scheduler.engine.wake, []

        def leaving(is_wanted: object) -> None:
            def seen() -> bool:
                fractions.append(1)
                scheduler.cancel(waiting)
                assert callable(is_wanted)
                return bool(is_wanted())

            wake(seen)

        scheduler.engine.wake = leaving  # type: ignore[assignment]
        scheduler.step()
        assert len(fractions) == 1, "it was read no further"
        assert scheduler.engine.is_asleep
        assert door.calls[-1] == "slept"
        run(scheduler)
        assert reply.finish is Finish.CANCELLED


def test_a_reply_that_has_begun_ends_before_the_model_sleeps() -> None:
    """Preempted for lack of cells, it goes on although the turn of the model is over."""
    door = Door()
    with behind(door) as scheduler:
        replies = [ask(scheduler, prompt(scheduler, 180, seed=seed), max_tokens=120)[1] for seed in range(2)]
        while not scheduler.num_waiting or not all(reply.tokens for reply in replies):
            assert scheduler.step()
        door.is_open, door.is_awaited = False, True
        _, late = ask(scheduler, prompt(scheduler, 20, seed=3))
        while not scheduler.engine.is_asleep:
            if not scheduler.step():
                scheduler.tidy()
        assert [len(reply.tokens) for reply in replies] == [120, 120]
        assert late.finish is None
        door.is_open, door.is_awaited = True, False
        run(scheduler)
        assert late.finish is Finish.LENGTH


def test_what_has_waited_while_the_model_was_loaded_is_answered_before_it_sleeps() -> None:
    door = Door()
    with behind(door) as scheduler:
        scheduler.waking.sleep()
        early = [ask(scheduler, prompt(scheduler, 20, seed=seed))[1] for seed in range(4)]
        scheduler.step()
        door.is_open, door.is_awaited = False, True
        _, late = ask(scheduler, prompt(scheduler, 20, seed=9))
        while not scheduler.engine.is_asleep:
            if not scheduler.step():
                scheduler.tidy()
        assert [reply.finish for reply in (*early, late)] == [Finish.LENGTH] * 4 + [None]


def test_nothing_is_read_ahead_while_another_model_waits() -> None:
    door = Door()
    with behind(door, num_cells=4096) as scheduler:
        ahead, seen = ask(scheduler, prompt(scheduler, 2048, seed=1))
        scheduler._waiting.clear()
        scheduler.read_ahead(ahead)
        door.is_awaited = True
        assert not scheduler.step()
        door.is_awaited = False
        assert scheduler.step(), "it is read while nobody waits"
        door.is_awaited = True
        assert not scheduler.step()
        assert seen.finish is Finish.CANCELLED
        assert np.all(np.array(seen.reads) < 2048)


def test_a_request_tells_what_it_has_waited_for() -> None:
    door = Door()
    with behind(door) as scheduler:
        tokens = prompt(scheduler, 200, seed=1)
        first, _ = ask(scheduler, tokens)
        run(scheduler)
        assert first.timings.waited_for == ""
        scheduler.waking.sleep()
        second, _ = ask(scheduler, tokens)
        run(scheduler)
        assert second.timings.waited_for.startswith("big was loading (0.")
        assert door.swaps.num == 1
        assert door.swaps.spared_tokens >= 199
        third, _ = ask(scheduler, tokens)
        run(scheduler)
        assert third.timings.waited_for == ""
