"""Measurements are of the right order, in time, and leave nothing behind."""

import time

import pytest

from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.errors import InputError
from leftoff.engine.measure import (
    Bandwidth,
    best_seconds,
    chunk_seconds,
    measure,
    measure_at_load,
    measure_batches,
    measure_pages,
    measure_snapshots,
    median_seconds,
    saturating_prefill,
    some_tokens,
)
from tests.factory import model_path

KINDS = ("llama", "qwen35", "mamba2", "gemma3", "deepseek32")
LIMIT_S = 0.05


def is_empty(engine: LlamaEngine) -> bool:
    memory = engine.memory
    lengths = [memory.length(seq) for seq in range(memory.num_sequences)]
    return not any(lengths) and memory.free_cells == memory.num_cells


def first_logits(engine: LlamaEngine) -> bytes:
    """What the model says after a few tokens: moves if anything of what came before is left in the memory."""
    (row,) = engine.decode([Work(0, some_tokens(engine, 24))])
    logits = engine.logits(row).tobytes()
    engine.memory.drop(0)
    return logits


def is_plausible(bandwidth: Bandwidth) -> bool:
    """Between the slowest disk of a machine that is busy with something else, and the fastest memory there is."""
    return all(1e3 < rate < 1e13 for rate in (bandwidth.save_bytes_per_s, bandwidth.load_bytes_per_s))


@pytest.mark.parametrize("engine", KINDS, indirect=True)
def test_what_is_measured_at_load_is_plausible_and_leaves_the_engine_as_it_was(engine: LlamaEngine) -> None:
    before = first_logits(engine)
    rates = measure_at_load(engine)
    assert is_empty(engine)
    assert first_logits(engine) == before
    assert rates.prefill.num_tokens in (16, 64, 256, 512)
    assert 1 < rates.prefill.tokens_per_s < 1e8
    assert 0 <= rates.cut_ms < 1e4
    assert 1e-3 < rates.step_ms < 1e4
    assert is_plausible(rates.moved)


@pytest.mark.parametrize("engine", KINDS, indirect=True)
def test_batches_are_measured_from_one_token_on(engine: LlamaEngine) -> None:
    before = first_logits(engine)
    seconds = measure_batches(engine)
    assert is_empty(engine)
    assert first_logits(engine) == before
    assert len(seconds) >= 2
    assert list(seconds)[:2] == [1, 2]
    assert all(1e-6 < time_s < 10 for time_s in seconds.values())


def test_the_best_of_a_few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    now, durations = 0.0, iter([0.02, 0.001, 0.01, 0.4, 0.0])

    def act() -> None:
        nonlocal now
        now += next(durations)

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    assert best_seconds(act, limit_s=1.0) == pytest.approx(0.001)
    assert best_seconds(act, limit_s=0.1) == pytest.approx(0.4), "three runs before; and a long one is not repeated"
    assert next(durations) == 0.0


def test_pieces_that_take_nearly_as_long_whatever_their_length() -> None:
    """As with 14 of 33 layers on a GPU, where every piece brings the weights of the others there."""
    seconds = {16: 0.15, 64: 0.66, 512: 0.75}
    assert saturating_prefill(seconds).num_tokens == 512
    assert chunk_seconds(seconds) == pytest.approx(0.647, abs=0.001)
    assert chunk_seconds({16: 0.16, 64: 0.64, 512: 5.12}) == pytest.approx(0.0), "all of it is for the tokens"


@pytest.mark.parametrize("engine", KINDS, indirect=True)
def test_every_kind_has_plausible_rates_and_leaves_the_engine_as_it_was(engine: LlamaEngine) -> None:
    before = first_logits(engine)
    measured = measure(engine, LIMIT_S)
    assert is_empty(engine)
    assert first_logits(engine) == before
    assert 16 <= measured.prefill.num_tokens <= 512
    assert 1 < measured.prefill.tokens_per_s < 1e8
    assert 0.1 < measured.decode_tokens_per_s < 1e6
    assert 1e6 < measured.memcpy_bytes_per_s < 1e13
    kind = engine.memory.kind
    assert (measured.page is not None) == kind.has_pages
    assert (measured.snapshot is not None) == kind.has_snapshots
    assert all(map(is_plausible, filter(None, (measured.page, measured.snapshot))))


@pytest.mark.parametrize("engine", ["qwen35"], indirect=True)
def test_bandwidths_name_the_bytes_that_were_moved(engine: LlamaEngine) -> None:
    page, snapshot = measure_pages(engine, 100, LIMIT_S), measure_snapshots(engine, 100, LIMIT_S)
    assert page is not None
    assert snapshot is not None
    assert page.nbytes == engine.memory.page_bytes(100)
    assert snapshot.nbytes == engine.memory.snapshot_bytes(100)


@pytest.mark.parametrize("engine", ["qwen35"], indirect=True)
def test_progress_rises_to_one(engine: LlamaEngine) -> None:
    seen: list[float] = []
    measure(engine, LIMIT_S, seen.append)
    assert len(seen) == 5
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


@pytest.mark.parametrize("engine", ["qwen35"], indirect=True)
def test_an_engine_in_use_is_refused_and_not_disturbed(engine: LlamaEngine) -> None:
    engine.decode([Work(3, some_tokens(engine, 7))])
    for measurement in (measure, measure_at_load, measure_batches):
        with pytest.raises(InputError, match="sequence 3 holds 7 tokens"):
            measurement(engine)
    assert engine.memory.length(3) == 7


@pytest.mark.parametrize("architecture", KINDS)
def test_a_small_context_and_batch_are_never_exceeded(architecture: str) -> None:
    settings = ContextSettings(num_cells=100, num_sequences=1, batch_tokens=32, threads=1)
    with LlamaEngine.open(model_path(architecture), settings) as engine:
        measured = measure(engine, LIMIT_S)
        assert measured.prefill.num_tokens in (16, 32), "the shorter one where time was too short"
        assert is_empty(engine)


def test_the_median_leaves_out_the_first_run_unless_it_is_the_only_one(monkeypatch: pytest.MonkeyPatch) -> None:
    now, durations = 0.0, iter([16.0, 2.0, 1.0, 4.0, 8.0, 0.1, 0.01])

    def run() -> None:
        nonlocal now
        now += next(durations)

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    assert median_seconds(run, limit_s=1000.0, most_runs=4) == 2.0
    assert median_seconds(run, limit_s=0.0) == 8.0
    assert median_seconds(run, limit_s=0.0) == pytest.approx(0.01), "a short one never is"
