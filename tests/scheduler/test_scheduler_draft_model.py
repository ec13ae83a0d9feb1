"""Replies with drafts of a draft model: the same tokens as without, and nothing but accepted tokens is kept."""

from collections.abc import Iterator

import numpy as np
import pytest

from leftoff.drafts.draft_model import DraftModel
from leftoff.sampling import Sampling
from leftoff.scheduler.job import Finish, Job
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Prompt, Tokens
from tests.drafts.sources import SometimesWrong
from tests.factory import small_vocabulary
from tests.scheduler.conftest import scheduler_for
from tests.scheduler.recorder import Recorder, assert_greedy, run

LENGTH = 90  # past the window of the sliding-window models
PAIRS = (("llama", "llama"), ("qwen35", "qwen35"), ("gemma3", "gemma3"), ("mamba2", "mamba2"), ("qwen35", "llama"))


def prompt(num_tokens: int, seed: int) -> Tokens:
    return np.random.default_rng(seed).choice(small_vocabulary().words, num_tokens).astype(np.int32)


def submit(scheduler: Scheduler, tokens: Tokens, max_tokens: int = 60, **changes: object) -> tuple[Run, Recorder]:
    recorder = Recorder()
    one = Run(Job(Prompt(tokens), max_tokens=max_tokens, ignore_end=True, **changes), recorder)  # type: ignore[arg-type]
    scheduler.submit(one)
    return one, recorder


@pytest.fixture(params=PAIRS, ids="-".join)
def scheduler(request: pytest.FixtureRequest) -> Iterator[Scheduler]:
    main, draft = request.param
    with scheduler_for(main, draft_model=draft, draft_class=SometimesWrong, num_cells=2048) as scheduler:
        yield scheduler


def test_greedy_replies_are_those_of_the_engine_alone(scheduler: Scheduler) -> None:
    one, recorder = submit(scheduler, tokens := prompt(LENGTH, 1))
    steps = run(scheduler)
    assert len(recorder.tokens) == 60
    assert 0 <= one.timings.num_accepted < one.timings.num_drafted, "some are right, and some are not"
    if scheduler.engine.model.path == scheduler.engine.draft.model.path:  # type: ignore[union-attr]
        assert one.timings.num_accepted > 30
        assert steps < 40
    assert set(one.timings.drafted_from) <= {"model"}
    scheduler.cache.check_integrity()
    held = scheduler.engine.memory.length(one.turn.seq)
    assert one.turn.sequence.tokens.tolist() == [*tokens.tolist(), *recorder.tokens][:held]
    assert_greedy(scheduler.engine, tokens, recorder.tokens)


def test_what_follows_is_as_if_nothing_was_drafted(scheduler: Scheduler) -> None:
    _, before = submit(scheduler, tokens := prompt(LENGTH, 2))
    run(scheduler)
    scheduler.tidy()
    following = np.concatenate([tokens, np.array(before.tokens, np.int32), prompt(9, 3)])
    _, recorder = submit(scheduler, following, max_tokens=30)
    run(scheduler)
    assert recorder.report is not None
    assert recorder.report.reused >= LENGTH + 50
    model = model_of(scheduler)
    assert model._turn is not None
    assert model._turn.report.reused >= LENGTH - 1, "the draft model goes on as well"
    model.cache.check_integrity()
    assert_greedy(scheduler.engine, following, recorder.tokens)


def model_of(scheduler: Scheduler) -> DraftModel:
    assert scheduler.drafter is not None
    assert scheduler.drafter.model is not None
    return scheduler.drafter.model


@pytest.mark.parametrize("scheduler", [PAIRS[0], PAIRS[1]], indirect=True, ids="-".join)
class TestEnds:
    @pytest.mark.parametrize("most", [1, 2, 7, 8, 9])
    def test_at_most_as_many_as_asked_for(self, scheduler: Scheduler, most: int) -> None:
        one, recorder = submit(scheduler, tokens := prompt(LENGTH, 6), max_tokens=most)
        run(scheduler)
        assert len(recorder.tokens) == most
        assert recorder.finish is Finish.LENGTH
        assert scheduler.engine.memory.length(one.turn.seq) < LENGTH + most
        assert_greedy(scheduler.engine, tokens, recorder.tokens)

    def test_cancelled_between_steps(self, scheduler: Scheduler) -> None:
        one, recorder = submit(scheduler, tokens := prompt(LENGTH, 7), max_tokens=200)
        while one.timings.num_accepted < 5:
            assert scheduler.step()
        scheduler.cancel(one)
        run(scheduler)
        assert recorder.finish is Finish.CANCELLED
        scheduler.cache.check_integrity()
        assert_greedy(scheduler.engine, tokens, recorder.tokens)

    def test_beside_others_nothing_is_drafted_and_then_it_goes_on(self, scheduler: Scheduler) -> None:
        prompts = [(prompt(LENGTH + seed, seed), most) for seed, most in ((10, 20), (11, 20), (12, 80))]
        runs = [(tokens, *submit(scheduler, tokens, max_tokens=most)) for tokens, most in prompts]
        run(scheduler)
        for tokens, _, recorder in runs:
            assert_greedy(scheduler.engine, tokens, recorder.tokens)
        assert [one.timings.num_drafted > 0 for _, one, _ in runs] == [False, False, True]


def test_what_promises_most_drafts() -> None:
    """A reply that a tenant has had before is copied, and the draft model guesses where nothing is known."""
    with scheduler_for(
        "llama", drafts=True, draft_model="llama", draft_class=SometimesWrong, num_cells=2048
    ) as scheduler:
        tokens = prompt(LENGTH, 20)
        first, _ = submit(scheduler, tokens)
        run(scheduler)
        assert first.timings.drafted_from["model"] > 10
        again, recorder = submit(scheduler, tokens)
        run(scheduler)
        assert_greedy(scheduler.engine, tokens, recorder.tokens)
        assert again.timings.num_accepted - again.timings.drafted_from.get("model", 0) > 20


def test_sampling_draws_as_without_drafts() -> None:
    sampling = Sampling(temperature=0.3, seed=7, repeat_penalty=1.1, presence_penalty=0.2)
    replies = []
    for draft_model in ("", "llama"):
        with scheduler_for("llama", draft_model=draft_model) as scheduler:
            one, recorder = submit(scheduler, prompt(LENGTH, 30), max_tokens=80, sampling=sampling)
            run(scheduler)
            replies.append(recorder.tokens)
    assert replies[0] == replies[1]
    assert one.timings.num_accepted > 0


def test_forgotten_with_its_tenant() -> None:
    with scheduler_for("llama", draft_model="llama") as scheduler:
        submit(scheduler, prompt(LENGTH, 40), namespace="one")
        run(scheduler)
        scheduler.tidy()
        assert model_of(scheduler).cache.ram.budget.used_bytes > 0
        assert scheduler.drafter is not None
        scheduler.drafter.forget(lambda name: name == "one")
        assert model_of(scheduler).cache.ram.budget.used_bytes == 0
        assert model_of(scheduler).cache.memory.length(0) == 0
