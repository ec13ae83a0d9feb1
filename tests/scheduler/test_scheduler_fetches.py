"""Waiting requests whose state is on disk: brought early, once, in turn, and never more than there is use for."""

from collections.abc import Callable, Container, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from leftoff.cache.blob_store import Item, Record
from leftoff.cache.blob_tier import TierSettings
from leftoff.cache.cache import Cache
from leftoff.cache.costs import Costs
from leftoff.cache.fetch import Fetches
from leftoff.cache.lookup import Lookup
from leftoff.cache.plan import Plan
from leftoff.cache.sequences import EngineSequence
from leftoff.disk.medium import open_folder
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.errors import BlobError
from leftoff.scheduler.job import Finish
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Prompt, Tokens
from tests.cache.shared_blob_store import SharedStore
from tests.factory import model_path
from tests.patience import PATIENCE_S
from tests.scheduler.recorder import ask, prompt, run


@contextmanager
def served(folder: Path, *, slots: int, ram_bytes: int = 1 << 28, num_cells: int = 2048) -> Iterator[Scheduler]:
    settings = ContextSettings(num_cells=num_cells, num_sequences=slots, threads=1)
    with LlamaEngine.open(model_path("llama"), settings) as engine:
        store = open_folder(folder, engine.memory.fingerprint, engine.context.arena)
        cache = Cache(engine.memory, num_slots=slots, budget_bytes=ram_bytes, tiers=[TierSettings(store, 1 << 30)])
        yield Scheduler(engine, cache)
        cache.close(PATIENCE_S)


def keep(folder: Path, num_prompts: int, num_tokens: int) -> list[Tokens]:
    with served(folder, slots=1, ram_bytes=1 << 20) as scheduler:
        prompts = [prompt(scheduler, num_tokens, seed=seed) for seed in range(num_prompts)]
        for tokens in prompts:
            ask(scheduler, tokens, max_tokens=1)
            run(scheduler)
            scheduler.tidy()
    return prompts


def counted(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> list[Prompt]:
    """The prompts for which the disk is asked."""
    begun: list[Prompt] = []
    fetch = scheduler.cache.fetch

    def counting(wanted: Prompt, namespace: str) -> Fetches | None:
        begun.append(wanted)
        return fetch(wanted, namespace)

    monkeypatch.setattr(scheduler.cache, "fetch", counting)
    return begun


def held_up(scheduler: Scheduler, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Nothing comes from the disk until the result is called."""
    assert scheduler.cache.disk is not None
    store = scheduler.cache.disk.blobs
    get, answers, held = store.get, list[Future[Item]](), list[Future[Item]]()

    def hold(records: Sequence[Record]) -> list[Future[Item]]:
        answers.extend(get(records))
        late: list[Future[Item]] = [Future() for _ in records]
        held.extend(late)
        return late

    def bring() -> None:
        for answer, late in zip(answers, held, strict=True):
            late.set_result(answer.result(PATIENCE_S))

    monkeypatch.setattr(store, "get", hold)
    return bring


def test_no_more_is_brought_than_there_are_slots_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = keep(tmp_path, 12, 600)
    with served(tmp_path, slots=1, ram_bytes=1 << 20) as scheduler:
        begun = counted(scheduler, monkeypatch)
        asked = [ask(scheduler, np.concatenate([tokens, tokens[:8]]), max_tokens=3)[1] for tokens in prompts]
        scheduler.step()
        assert len(begun) <= 2
        run(scheduler)
        assert {recorder.finish for recorder in asked} == {Finish.LENGTH}
        assert all(recorder.report and recorder.report.reused >= 599 for recorder in asked)
        assert len(begun) == 12


def test_who_waits_for_cells_is_not_read_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tokens,) = keep(tmp_path, 1, 1200)
    with served(tmp_path, slots=2) as scheduler:
        _, running = ask(scheduler, prompt(scheduler, 1200, seed=7), max_tokens=100)
        while not running.tokens:
            scheduler.step()
        begun = counted(scheduler, monkeypatch)
        _, waiting = ask(scheduler, np.concatenate([tokens, tokens[:8]]), max_tokens=3)
        run(scheduler)
        assert waiting.report is not None
        assert waiting.report.reused >= 1199
        assert len(begun) == 1


def test_who_waits_for_the_disk_keeps_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tokens,) = keep(tmp_path, 1, 1200)
    with served(tmp_path, slots=1) as scheduler:
        bring = held_up(scheduler, monkeypatch)
        _, first = ask(scheduler, np.concatenate([tokens, tokens[:8]]), max_tokens=3)
        others = [ask(scheduler, prompt(scheduler, 30, seed=20 + i), max_tokens=30)[1] for i in range(20)]

        def num_ended() -> int:
            return sum(recorder.finish is not None for recorder in others)

        while num_ended() < 3:
            scheduler.step()
        assert first.report is None, "the others do not wait with it"
        bring()
        while first.finish is None:
            scheduler.step()
        assert num_ended() <= 4, "it comes after the one that ran"
        run(scheduler)


def test_what_the_engine_does_not_take_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tokens,) = keep(tmp_path, 1, 600)
    with served(tmp_path, slots=1) as scheduler:
        restore, num_refused = scheduler.engine.memory.restore, 0

        def refuse(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401
            nonlocal num_refused
            if kwargs["pages"]:
                num_refused += 1
                raise BlobError("right seal, wrong shape")
            restore(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(scheduler.engine.memory, "restore", refuse)
            _, reply = ask(scheduler, np.concatenate([tokens, tokens[:8]]), max_tokens=3)
            run(scheduler)
        assert num_refused == 1
        assert reply.finish is Finish.LENGTH
        assert reply.report is not None
        assert reply.report.reused == 0
        scheduler.cache.check_integrity()


def test_an_admission_plans_once_with_and_without_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tokens,) = keep(tmp_path, 1, 600)
    with served(tmp_path, slots=1) as scheduler:
        planner, num_plans = scheduler.cache._planner, 0
        best = planner.best

        def counting(lookup: Lookup, besides: Container[EngineSequence] = ()) -> Plan:
            nonlocal num_plans
            num_plans += 1
            return best(lookup, besides)

        monkeypatch.setattr(planner, "best", counting)
        for number, source in ((1, "disk"), (2, "a live slot")):
            _, recorder = ask(scheduler, np.concatenate([tokens, tokens[: 8 * number]]), max_tokens=1)
            while recorder.finish is None:
                if not scheduler.step():
                    scheduler.tidy()
                    scheduler.wait(1.0)
            assert recorder.report is not None
            assert recorder.report.source == source
            assert num_plans == number


def test_what_a_search_finds_at_once_is_used() -> None:
    """Two machines over one store: the second resumes from what the first has read, though the answer does not wait."""
    settings, store = ContextSettings(num_cells=2048, num_sequences=1, threads=1), SharedStore()
    computed = []
    for _ in range(2):
        with LlamaEngine.open(model_path("llama"), settings) as engine:
            costs = Costs(prefill_tokens_per_ms=0.01, rate_tokens=1 << 30)  # reading is slow, and nothing is measured
            cache = Cache(
                engine.memory, num_slots=1, budget_bytes=1 << 28, tiers=[TierSettings(store, 1 << 30)], costs=costs
            )
            scheduler = Scheduler(engine, cache)
            _, asked = ask(scheduler, prompt(scheduler, 600, seed=3), max_tokens=1)
            run(scheduler)
            assert asked.report is not None
            computed.append(asked.report.computed)
    assert computed[0] == 600
    assert computed[1] < 10


def test_what_was_fetched_is_let_go_once_the_request_runs(tmp_path: Path) -> None:
    (tokens,) = keep(tmp_path, 1, 600)
    with served(tmp_path, slots=1) as scheduler:
        one, recorder = ask(scheduler, np.concatenate([tokens, tokens[:8]]), max_tokens=50)
        while not recorder.tokens:
            if not scheduler.step():
                scheduler.wait(PATIENCE_S)
        assert recorder.report is not None
        assert recorder.report.source == "disk"
        assert one.preparation is None, "else it would fill RAM beside what is counted"
