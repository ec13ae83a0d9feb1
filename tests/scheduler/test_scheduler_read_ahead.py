"""What is read while nobody waits is there when somebody does, and never in the way."""

import threading

import numpy as np
import pytest

from leftoff.scheduler.job import Finish, Job
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Prompt
from tests.engine.scenario import asked
from tests.scheduler.conftest import scheduler_for
from tests.scheduler.recorder import Recorder, ask, assert_greedy, prompt, run

KINDS = ["llama", "qwen35", "mamba2", "gemma3", "deepseek4"]


def read_ahead(scheduler: Scheduler, num_tokens: int, seed: int) -> tuple[Run, Recorder]:
    recorder = Recorder()
    asked = Run(Job(Prompt(prompt(scheduler, num_tokens, seed=seed)), max_tokens=0), recorder)
    scheduler.read_ahead(asked)
    return asked, recorder


@pytest.mark.parametrize("architecture", KINDS)
def test_what_was_read_ahead_is_not_read_again(architecture: str) -> None:
    with scheduler_for(architecture, slots=1) as scheduler:
        asked, recorder = read_ahead(scheduler, 550, seed=1)
        run(scheduler)
        assert recorder.finish is Finish.LENGTH
        tokens = np.concatenate([asked.prompt.tokens, prompt(scheduler, 20, seed=2)])
        _, reply = ask(scheduler, tokens)
        run(scheduler)
        assert reply.report is not None
        assert reply.report.computed == 20
        assert_greedy(scheduler.engine, tokens, reply.tokens)


@pytest.mark.parametrize("architecture", KINDS)
def test_it_ends_in_the_middle_of_a_decode_when_somebody_asks(architecture: str) -> None:
    with scheduler_for(architecture, slots=1) as scheduler:
        _, ahead = read_ahead(scheduler, 6000, seed=1)
        tokens = prompt(scheduler, 40, seed=2)
        replies: list[Recorder] = []

        def interrupt(_: int) -> None:
            if len(ahead.reads) == 2 and not replies:
                other = threading.Thread(target=lambda: replies.append(ask(scheduler, tokens)[1]))
                other.start()
                other.join()

        with asked(scheduler.engine, interrupt) as answers:
            run(scheduler)
        assert any(answers), "a decode was stopped on its way"
        (reply,) = replies
        assert ahead.finish is Finish.CANCELLED
        assert reply.finish is Finish.LENGTH
        scheduler.cache.check_integrity()
        _, after = ask(scheduler, prompt(scheduler, 300, seed=3))
        run(scheduler)
        assert after.finish is Finish.LENGTH, "the engine is not cancelled any more"
        assert_greedy(scheduler.engine, tokens, reply.tokens)


@pytest.mark.parametrize("architecture", ["llama", "qwen35", "mamba2", "gemma3"])
def test_who_comes_just_before_a_batch_is_not_cancelled_with_it(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scheduler_for(architecture, slots=2) as scheduler:
        known = prompt(scheduler, 200, seed=1)
        ask(scheduler, known)
        run(scheduler)
        scheduler.cache.costs.prefill_tokens_per_ms = 2.0
        _, ahead = read_ahead(scheduler, 542, seed=2)
        scheduler.step()  # what is left of it would fit into one batch with what comes
        admit, tokens, asked = scheduler._admit, np.concatenate([known, prompt(scheduler, 40, seed=3)]), []

        def ask_and_admit() -> None:
            monkeypatch.undo()
            asked.append(ask(scheduler, tokens)[1])
            admit()

        monkeypatch.setattr(scheduler, "_admit", ask_and_admit)
        run(scheduler)
        assert ahead.finish is Finish.CANCELLED
        assert asked[0].finish is Finish.LENGTH, asked[0].error
        assert_greedy(scheduler.engine, tokens, asked[0].tokens)


def test_nothing_is_read_ahead_while_somebody_waits() -> None:
    with scheduler_for("qwen35", slots=2) as scheduler:
        _, reply = ask(scheduler, prompt(scheduler, 50, seed=1), max_tokens=20)
        _, ahead = read_ahead(scheduler, 400, seed=2)
        while reply.finish is None:
            assert not ahead.reads
            scheduler.step()
        run(scheduler)
        assert ahead.finish is Finish.LENGTH


def test_what_is_known_already_is_not_worth_it() -> None:
    with scheduler_for("qwen35", slots=1) as scheduler:
        read_ahead(scheduler, 400, seed=2)
        run(scheduler)
        _, again = read_ahead(scheduler, 400, seed=2)
        run(scheduler)
        assert again.finish is Finish.CANCELLED
        assert again.report is None


@pytest.mark.parametrize("num_steps", [0, 1], ids=["while it waits", "while it is read"])
def test_of_a_namespace_that_is_deleted_nothing_is_read_ahead(num_steps: int) -> None:
    with scheduler_for("qwen35", slots=2) as scheduler:
        asked, _ = read_ahead(scheduler, 6000, seed=1)
        for _ in range(num_steps):
            scheduler.step()
        scheduler.forget_ahead(lambda namespace: namespace == asked.job.namespace)
        scheduler.cache.clear(lambda _: True)
        run(scheduler)
        scheduler.cache.save_idle()
        assert [tier.budget.used_bytes for tier in scheduler.cache.tiers] == [0]
