"""The engine's thread outlives what goes wrong around it, and answers everybody before it ends."""

import asyncio
import threading
from collections.abc import Iterator

import pytest

from leftoff.cache.cache import Cache
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine
from leftoff.scheduler.job import Finish, Job
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.scheduler.worker import Worker
from leftoff.types import Prompt
from tests.factory import model_path
from tests.patience import PATIENCE_S, until
from tests.scheduler.recorder import Recorder, prompt


def make() -> Scheduler:
    settings = ContextSettings(num_cells=2048, num_sequences=2, threads=1)
    engine = LlamaEngine.open(model_path("llama"), settings)
    return Scheduler(engine, Cache(engine.memory, num_slots=2, budget_bytes=1 << 28))


@pytest.fixture
def worker() -> Iterator[Worker]:
    worker = Worker(make)
    yield worker
    if worker.is_alive:
        worker.stop()
    worker.scheduler.engine.close()


def submit(worker: Worker, num_tokens: int, max_tokens: int) -> Recorder:
    recorder = Recorder()
    tokens = prompt(worker.scheduler, num_tokens, seed=num_tokens)
    worker.scheduler.submit(Run(Job(Prompt(tokens), max_tokens=max_tokens), recorder))
    return recorder


def ended(recorder: Recorder) -> Finish | None:
    until(lambda: recorder.finish is not None)
    return recorder.finish


def test_a_call_whose_caller_has_gone_does_no_harm(worker: Worker) -> None:
    running = submit(worker, 1500, max_tokens=50)
    has_gone = threading.Event()
    worker.call(lambda: has_gone.wait(PATIENCE_S))  # else the call is answered before its caller has gone

    async def call_and_go() -> None:
        task = asyncio.create_task(asyncio.wait_for(asyncio.wrap_future(worker.call(lambda: 1)), PATIENCE_S))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(call_and_go())
    has_gone.set()
    assert ended(running) is Finish.LENGTH
    assert worker.call(lambda: 2).result(PATIENCE_S) == 2


def test_who_comes_while_the_disk_is_written_is_answered(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    is_saving, go_on = threading.Event(), threading.Event()

    def save(_: float) -> None:
        is_saving.set()
        go_on.wait(PATIENCE_S)

    monkeypatch.setattr(worker.scheduler.cache, "close", save)
    stopping = threading.Thread(target=worker.stop)
    stopping.start()
    assert is_saving.wait(PATIENCE_S)
    assert not worker.is_alive, "nobody is invited any more"
    late = submit(worker, 20, max_tokens=2)
    called = worker.call(lambda: 3)
    go_on.set()
    stopping.join()
    assert late.finish is Finish.CANCELLED
    assert called.result(PATIENCE_S) == 3


def test_who_comes_after_the_end_is_answered_too(worker: Worker) -> None:
    worker.stop()
    assert submit(worker, 20, max_tokens=2).finish is Finish.CANCELLED
    assert worker.call(lambda: 3).cancelled()
    assert worker.scheduler.waking.errands.add(lambda: 4).cancelled()


def test_an_error_while_the_others_are_told_does_not_keep_the_state_from_being_saved(
    worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = threading.Event()

    def fail() -> None:
        raise ValueError("not today")

    monkeypatch.setattr(worker.scheduler, "close", fail)
    monkeypatch.setattr(worker.scheduler.cache, "close", lambda _: saved.set())
    worker.stop()
    assert saved.is_set()
