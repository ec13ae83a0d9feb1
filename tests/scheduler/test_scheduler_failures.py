"""What goes wrong in one request is no matter of the others, and leaves no slot, fetch or wrong state behind."""

import numpy as np
import pytest

from leftoff.engine.errors import EngineError
from leftoff.engine.memory.base import Snapshot
from leftoff.sampling import Sampling
from leftoff.scheduler.job import Finish, Job, Timings
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Logits, Prompt
from tests.scheduler.conftest import scheduler_for
from tests.scheduler.recorder import Recorder, ask, assert_greedy, prompt, run

KINDS = ["llama", "qwen35", "mamba2", "gemma3"]


class BrokenToken(Recorder):
    def token(self, token: int, logits: Logits | None) -> bool:
        super().token(token, logits)
        raise ValueError("a fault of the sink")


class BrokenEnd(Recorder):
    def finished(self, finish: Finish, timings: Timings, error: Exception | None) -> None:
        super().finished(finish, timings, error)
        raise ValueError("a fault of the sink")


class BrokenProgress(Recorder):
    def progress(self, num_read: int) -> None:
        raise ValueError(f"a fault of the sink at {num_read}")


def submit(scheduler: Scheduler, recorder: Recorder, num_tokens: int, seed: int) -> Recorder:
    scheduler.submit(Run(Job(Prompt(prompt(scheduler, num_tokens, seed=seed)), max_tokens=4), recorder))
    return recorder


@pytest.mark.parametrize("kind", [BrokenToken, BrokenEnd])
def test_a_sink_that_fails_is_no_matter_of_the_others(kind: type[Recorder]) -> None:
    with scheduler_for("qwen35", slots=2) as scheduler:
        broken = submit(scheduler, kind(), 30, seed=1)
        other = submit(scheduler, Recorder(), 40, seed=2)
        run(scheduler)
        assert broken.finish is (Finish.FAILED if kind is BrokenToken else Finish.LENGTH)
        assert (other.finish, len(other.tokens)) == (Finish.LENGTH, 4)
        assert scheduler.cache.sequences.num_free_slots == 2


@pytest.mark.parametrize("architecture", KINDS)
def test_what_was_read_but_never_told_is_not_taken_for_something_else(architecture: str) -> None:
    with scheduler_for(architecture, slots=1) as scheduler:
        old = prompt(scheduler, 400, seed=1)
        ask(scheduler, old, max_tokens=4)
        run(scheduler)
        # behind position 200 the slot's record still has the old tokens
        new = np.concatenate([old[:200], prompt(scheduler, 150, seed=2)])
        scheduler.submit(Run(Job(Prompt(new), max_tokens=4), BrokenProgress()))
        with pytest.raises(ValueError, match="a fault of the sink") as fault:
            run(scheduler)
        scheduler.fail(scheduler.runs, fault.value)
        scheduler.cache.check_integrity()
        asked = np.concatenate([old[:350], prompt(scheduler, 20, seed=5)])
        _, reply = ask(scheduler, asked)
        run(scheduler)
        assert_greedy(scheduler.engine, asked, reply.tokens)


@pytest.mark.parametrize("error", [EngineError("no state"), MemoryError()])
def test_an_error_at_the_beginning_frees_the_slot(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    with scheduler_for("qwen35", slots=1) as scheduler:
        ask(scheduler, prompt(scheduler, 300, seed=1))
        run(scheduler)

        def fail(*_: object) -> Snapshot:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(scheduler.engine.memory, "save_snapshot", fail)
            _, failed = ask(scheduler, prompt(scheduler, 100, seed=2))
            run(scheduler)
        assert (failed.finish, failed.error) == (Finish.FAILED, error)
        _, after = ask(scheduler, prompt(scheduler, 50, seed=3))
        run(scheduler)
        assert after.finish is Finish.LENGTH
        scheduler.cache.check_integrity()


def test_a_sampler_that_cannot_be_made_takes_no_slot() -> None:
    with scheduler_for("llama", slots=1) as scheduler:
        recorder, bias = Recorder(), Sampling(logit_bias=((10**6, 1.0),))
        scheduler.submit(Run(Job(Prompt(prompt(scheduler, 20, seed=1)), bias, max_tokens=2), recorder))
        run(scheduler)
        assert recorder.finish is Finish.FAILED
        assert scheduler.cache.sequences.num_free_slots == 1


def test_an_error_while_a_run_waits_ends_that_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    with scheduler_for("llama", slots=3) as scheduler:
        tokens = prompt(scheduler, 2000, seed=1)
        _, first = ask(scheduler, tokens)
        scheduler.step()
        _, second = ask(scheduler, tokens)

        def fail(*_: object) -> object:
            monkeypatch.undo()
            raise RuntimeError("a fault of the plan")

        monkeypatch.setattr(scheduler.cache, "plan", fail)
        _, third = ask(scheduler, prompt(scheduler, 50, seed=2))
        run(scheduler)
        assert (second.finish, str(second.error)) == (Finish.FAILED, "a fault of the plan")
        assert [first.finish, third.finish] == [Finish.LENGTH] * 2


@pytest.mark.parametrize("architecture", ["llama", "qwen35", "mamba2"])
def test_who_comes_while_a_read_ahead_is_planned_is_not_in_its_way(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scheduler_for(architecture, slots=2) as scheduler:
        ahead, plan, asked = Recorder(), scheduler.cache.plan, []
        scheduler.read_ahead(Run(Job(Prompt(prompt(scheduler, 2000, seed=1)), max_tokens=0), ahead))

        def ask_and_plan(prompt_ahead: Prompt, namespace: str) -> object:
            monkeypatch.undo()
            asked.append(ask(scheduler, prompt(scheduler, 300, seed=2))[1])
            return plan(prompt_ahead, namespace)

        monkeypatch.setattr(scheduler.cache, "plan", ask_and_plan)
        scheduler.step()
        assert not ahead.reads, "somebody waits"
        run(scheduler)
        assert asked[0].finish is Finish.LENGTH
        assert ahead.finish is Finish.LENGTH, "it comes afterwards"


@pytest.mark.parametrize("architecture", KINDS)
def test_whose_state_a_cancelled_batch_has_spoiled_goes_on_from_what_is_kept(architecture: str) -> None:
    with scheduler_for(architecture, slots=2) as scheduler:
        tokens = prompt(scheduler, 300, seed=1)
        _, reply = ask(scheduler, tokens, max_tokens=20)
        while len(reply.tokens) < 5:
            scheduler.step()
        scheduler.engine.cancel()
        run(scheduler)
        assert (reply.finish, len(reply.tokens)) == (Finish.LENGTH, 20)
        assert_greedy(scheduler.engine, tokens, reply.tokens)
