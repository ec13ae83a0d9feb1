"""With a grid, the logits of a request are a matter of its prompt alone, not of what the server did before.

Pieces are large enough for the CPU's tiles, and there are two threads: whatever parts a prompt in another way, or puts
it elsewhere in the engine, would show.
"""

from collections.abc import Iterator

import numpy as np
import pytest

from leftoff.scheduler.job import Job
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Prompt, Tokens
from tests.scheduler.conftest import scheduler_for
from tests.scheduler.recorder import Recorder, assert_greedy, prompt, run

GRID = 64
KINDS = ["llama", "qwen35", "gemma3", "lfm2-window", "rwkv7", "deepseek32", "deepseek4"]


def read(scheduler: Scheduler, tokens: Tokens, namespace: str = "", max_tokens: int = 6) -> Recorder:
    recorder = Recorder()
    scheduler.submit(Run(Job(Prompt(tokens), max_tokens=max_tokens, namespace=namespace, wants_logits=True), recorder))
    run(scheduler)
    return recorder


def history(scheduler: Scheduler, seed: int) -> Iterator[Tokens]:
    """Prompts that grow, are edited in the middle, or branch off. Replies are made up: the model's are no better."""
    rng = np.random.default_rng(seed)
    told = [prompt(scheduler, 200, seed)]
    for number in range(5):
        before = told[rng.integers(len(told))]
        place = before.size if rng.random() < 0.5 else int(rng.integers(1, before.size))
        new = prompt(scheduler, int(rng.integers(1, 100)), 100 * seed + number)
        told.append(np.concatenate([before[:place], new]))
        yield told[-1]


@pytest.mark.parametrize(("architecture", "flash_attention"), [*((kind, "auto") for kind in KINDS), ("llama", "off")])
def test_the_same_prompt_gets_the_same_logits_whatever_came_before(architecture: str, flash_attention: str) -> None:
    """Without flash attention, memory is opaque."""
    with scheduler_for(architecture, slots=2, num_cells=2048, grid=GRID, flash_attention=flash_attention) as scheduler:
        num_reused = 0
        for number, tokens in enumerate(history(scheduler, seed=3)):
            warm, cold = read(scheduler, tokens), read(scheduler, tokens, namespace=str(number))
            assert warm.report is not None
            assert cold.report is not None
            assert cold.report.reused == 0
            assert warm.report.reused % GRID == 0
            num_reused += warm.report.reused
            assert warm.tokens == cold.tokens
            for one, other in zip(warm.logits, cold.logits, strict=True):
                np.testing.assert_array_equal(one, other)
            scheduler.cache.check_integrity()
        assert num_reused > 500, "nothing was resumed: nothing is shown"
        assert_greedy(scheduler.engine, tokens, warm.tokens)


def test_requests_that_come_together_are_answered_one_after_the_other() -> None:
    with scheduler_for("qwen35", slots=3, grid=GRID) as scheduler:
        prompts = [prompt(scheduler, 100 + 30 * seed, seed) for seed in range(4)]
        alone = [read(scheduler, tokens, namespace=f"alone {number}") for number, tokens in enumerate(prompts)]
        recorders = [Recorder() for _ in prompts]
        for number, (tokens, recorder) in enumerate(zip(prompts, recorders, strict=True)):
            run = Run(Job(Prompt(tokens), max_tokens=6, namespace=f"{number}", wants_logits=True), recorder)
            scheduler.submit(run)
        while scheduler.step():
            assert len(scheduler.runs) <= 1
        for one, other in zip(alone, recorders, strict=True):
            np.testing.assert_array_equal(one.logits, other.logits)


@pytest.mark.parametrize("architecture", ["llama", "qwen35", "rwkv7"])
def test_what_the_model_wrote_is_read_again_and_nothing_else(architecture: str) -> None:
    """A written token is computed by itself, a read one beside others: their last bits differ."""
    with scheduler_for(architecture, slots=2, grid=GRID) as scheduler:
        tokens = prompt(scheduler, 3 * GRID + 10, seed=1)
        first = read(scheduler, tokens, max_tokens=20)
        longer = np.concatenate([tokens, np.array(first.tokens, np.int32), prompt(scheduler, 100, seed=2)])
        second = read(scheduler, longer)
        assert second.report is not None
        assert second.report.reused == 3 * GRID
