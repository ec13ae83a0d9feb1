"""What a cache keeps when memory runs out in the middle of a request, and what it forgets when it is told to."""

from collections.abc import Iterator

import numpy as np
import pytest

from leftoff.cache.cache import Cache
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.memory.arena import Buffer
from leftoff.engine.memory.base import MemoryKind
from leftoff.engine.memory.staging import Fill
from leftoff.types import Logits, Prompt, Tokens
from tests.cache.driver import Table
from tests.cache.real import RealServer
from tests.engine.scenario import cold, prompt, with_locked_memory
from tests.factory import model_path

SETTINGS = ContextSettings(num_cells=4096, num_sequences=3, threads=1)


@pytest.fixture(params=["llama", "qwen35", "gemma3"])
def engine(request: pytest.FixtureRequest) -> Iterator[LlamaEngine]:
    with LlamaEngine.open(model_path(request.param), SETTINGS) as engine:
        yield engine


def cache_of(engine: LlamaEngine) -> Cache:
    return Cache(engine.memory, num_slots=2, budget_bytes=1 << 30, page_tokens=32)


def ask(engine: LlamaEngine, cache: Cache, tokens: Tokens, namespace: str = "") -> tuple[Logits, str]:
    turn = cache.begin(Prompt(tokens), namespace)
    assert turn is not None
    logits = RealServer(engine, cache)._read(turn)
    cache.finish(turn)
    return logits.copy(), turn.report.line()


def leave_engine(cache: Cache) -> None:
    cache.save_idle()
    for sequence in cache.sequences:
        if not sequence.is_empty:
            cache.tiers.save(sequence)
            cache.drop_sequence(sequence)


def test_after_a_failed_load_nobody_goes_on_from_the_state_of_another(
    engine: LlamaEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs, mine, tail = prompt(engine, 400, 2), prompt(engine, 400, 1), prompt(engine, 20, 4)
    expected, _, _ = cold(engine, np.concatenate([mine[:100], tail]))
    cache = cache_of(engine)
    branch = np.concatenate([theirs[:100], prompt(engine, 300, 3)])
    ask(engine, cache, branch, "they")
    leave_engine(cache)
    for tokens, namespace in ((theirs, "they"), (mine, "me"), (prompt(engine, 50, 9), "others")):
        ask(engine, cache, tokens, namespace)
    cache.save_idle()
    for sequence in cache.sequences:
        sequence.last_used *= sequence.namespace != "me"  # it is overwritten next

    def no_memory(_: int) -> Buffer:
        raise MemoryError("no memory for a state")

    with monkeypatch.context() as patch:
        patch.setattr(engine.context.staging, "take", no_memory)
        with pytest.raises(MemoryError):
            cache.begin(Prompt(np.concatenate([branch, tail])), "they")
    cache.check_integrity()
    got, _ = ask(engine, cache, np.concatenate([mine[:100], tail]), "me")
    assert np.abs(got - expected).max() < 0.01 * np.abs(expected).max(), "5.2 of 7.6 with the state of another"


@pytest.mark.parametrize("engine", ["llama"], indirect=True)
def test_a_page_that_could_not_be_kept_fails_no_prompt(engine: LlamaEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    tokens = prompt(engine, 400, 1)
    with with_locked_memory(engine, 1 << 22):
        cache, stored = cache_of(engine), 0
        staging = engine.context.staging
        filled = staging._filled

        def flaky(nbytes: int, fill: Fill) -> Buffer:
            nonlocal stored
            stored += 1
            if stored == 2:
                raise MemoryError("no memory for a page")
            return filled(nbytes, fill)

        ask(engine, cache, tokens)
        with monkeypatch.context() as patch:
            patch.setattr(staging, "_filled", flaky)
            leave_engine(cache)
        assert stored >= 2
        assert " 10 new" in ask(engine, cache, np.append(tokens, prompt(engine, 10, 7)))[1]
        assert "reused 400 of 411" in ask(engine, cache, np.append(tokens, prompt(engine, 11, 8)))[1]


@pytest.mark.parametrize("kind", [MemoryKind.ATTENTION, MemoryKind.HYBRID])
def test_what_is_dropped_does_not_come_back_with_a_sequence_that_holds_its_beginning(kind: MemoryKind) -> None:
    table, rng = Table(kind, num_slots=2), np.random.default_rng(1)
    whole = rng.integers(0, 1000, 200).astype(np.int32)
    turns = [table.begin(Prompt(tokens)) for tokens in (whole[:100], whole)]
    for do in (table.read, table.cache.finish):
        for turn in turns:
            assert turn is not None
            do(turn)
    table.cache.save_idle()
    table.cache.drop(whole, 0)
    leave_engine(table.cache)
    assert table.cache.ram.budget.used_bytes == 0
