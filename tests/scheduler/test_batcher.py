"""What batches cost is learned from the time they take, each token once."""

from collections.abc import Iterator

import numpy as np
import pytest

from leftoff.cache.costs import Costs
from leftoff.cache.report import ReuseReport
from leftoff.cache.sequences import EngineSequence
from leftoff.cache.turn import Turn
from leftoff.drafts.batch_times import BatchTimes
from leftoff.drafts.drafter import Drafter
from leftoff.drafts.trail import Draft, DraftSource
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.scheduler.batcher import Batch, Batcher, Limits
from leftoff.scheduler.job import Job
from leftoff.scheduler.run import Run
from leftoff.types import Prompt
from tests.cache.trees import Grove
from tests.factory import model_path
from tests.scheduler.recorder import Recorder


@pytest.fixture(scope="module")
def engine() -> Iterator[LlamaEngine]:
    settings = ContextSettings(num_cells=256, num_sequences=2, threads=1)
    with LlamaEngine.open(model_path("llama"), settings) as engine:
        yield engine


def batch(*sizes: int, draft: Draft | None = None) -> Batch:
    tokens = [np.zeros(size, np.int32) for size in sizes]
    return Batch([(Run(Job(Prompt(each)), Recorder()), Work(0, each)) for each in tokens], draft)


def is_near(rate: float, before: float, num_tokens: int, ms: float) -> bool:
    """The newest measurement counts a fifth."""
    return rate == pytest.approx(before + 0.2 * (num_tokens / ms - before))


def test_a_batch_that_nobody_waited_for_is_timed_with_the_next(engine: LlamaEngine) -> None:
    costs = Costs(prefill_tokens_per_ms=1.0)
    batcher = Batcher(engine, costs, Limits())
    batcher.saw(batch(100), 1.0, is_awaited=False)  # a GPU has only just begun it
    assert costs.prefill_tokens_per_ms == 1.0
    batcher.saw(batch(50), 299.0)
    assert is_near(costs.prefill_tokens_per_ms, 1.0, 150, 300.0)
    rate = costs.prefill_tokens_per_ms
    batcher.saw(batch(60), 30.0)
    assert is_near(costs.prefill_tokens_per_ms, rate, 60, 30.0), "the others were counted"


def test_after_many_tokens_a_batch_is_waited_for(engine: LlamaEngine) -> None:
    batcher = Batcher(engine, Costs(), Limits())
    one = batch(4096)
    tokens = np.zeros(100_000, np.int32)
    report = ReuseReport(tokens.size, 0, 0, "nothing", (), tokens[:0], tokens[:0])
    ((run, _),) = one.parts
    run.turn = Turn(Prompt(tokens), EngineSequence(0, Grove().budget), report, ())
    quiet = Batch([(run, Work(0, tokens[:4096], logits=False))])
    assert not batcher.is_awaited(quiet)
    batcher.saw(quiet, 1.0, is_awaited=False)
    assert batcher.is_awaited(quiet), "else the time of all of them would never be known"


def test_steps_chunks_and_drafts_are_told_apart(engine: LlamaEngine) -> None:
    costs, times = Costs(prefill_tokens_per_ms=1.0, step_ms=10.0), BatchTimes({1: 0.010, 64: 0.64})
    batcher = Batcher(engine, costs, Limits(), Drafter(times, decodes_again=False))
    batcher.saw(batch(1, 1, 1), 20.0)
    assert costs.step_ms == pytest.approx(12.0)
    assert times.ms == 10.0, "a step of three replies is no batch of one token"
    batcher.saw(batch(1), 22.0)
    assert costs.step_ms == pytest.approx(14.0)
    assert times.ms == pytest.approx(11.2)
    before = times.multiples[8]
    batcher.saw(batch(8, draft=Draft([1] * 7, 3, DraftSource.REPLY)), 30.0)
    assert times.multiples[8] < before
    assert costs.prefill_tokens_per_ms == 1.0, "a draft is no prompt"
    multiples = [*times.multiples]
    batcher.saw(batch(40), 20.0)
    assert is_near(costs.prefill_tokens_per_ms, 1.0, 40, 20.0)
    assert times.multiples == multiples
    batcher.saw(batch(40, 1), 20.0)
    assert times.multiples == multiples
    assert costs.step_ms == pytest.approx(14.0)
