"""Replies with drafts that are guessed, by a draft model or a next-token layer: the same tokens, in fewer steps."""

from collections.abc import Iterator
from contextlib import AbstractContextManager

import numpy as np
import pytest

from leftoff.drafts.draft_model import DraftModel
from leftoff.sampling import Sampling
from leftoff.scheduler.job import Finish, Job
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Prompt, Tokens
from tests.drafts.sources import SometimesWrong
from tests.factory import MTP, small_vocabulary
from tests.scheduler.conftest import scheduler_for
from tests.scheduler.recorder import Recorder, assert_greedy, run

LENGTH = 90  # past the window of the sliding-window models
Pair = tuple[str, str]  # a model and its draft model; without one, its next-token layer guesses
LAYER: Pair = (MTP, "")
DENSE: Pair = ("llama", "llama")
HYBRID: Pair = ("qwen35", "qwen35")
PAIRS = (DENSE, HYBRID, ("gemma3", "gemma3"), ("mamba2", "mamba2"), ("qwen35", "llama"), LAYER)


def prompt(num_tokens: int, seed: int) -> Tokens:
    return np.random.default_rng(seed).choice(small_vocabulary().words, num_tokens).astype(np.int32)


def submit(scheduler: Scheduler, tokens: Tokens, max_tokens: int = 60, **changes: object) -> tuple[Run, Recorder]:
    recorder = Recorder()
    one = Run(Job(Prompt(tokens), max_tokens=max_tokens, ignore_end=True, **changes), recorder)  # type: ignore[arg-type]
    scheduler.submit(one)
    return one, recorder


def guessed(pair: Pair, *, drafts: bool = False) -> AbstractContextManager[Scheduler]:
    main, draft = pair
    if not draft:
        return scheduler_for(main, mtp=True, drafts=drafts, num_cells=2048)
    return scheduler_for(main, draft_model=draft, draft_class=SometimesWrong, drafts=drafts, num_cells=2048)


def source(pair: Pair) -> str:
    return "model" if pair[1] else "mtp"


def model_of(scheduler: Scheduler) -> DraftModel:
    assert scheduler.drafter is not None
    assert scheduler.drafter.model is not None
    return scheduler.drafter.model


@pytest.fixture(params=PAIRS, ids="-".join)
def pair(request: pytest.FixtureRequest) -> Pair:
    found: Pair = request.param
    return found


@pytest.fixture
def scheduler(pair: Pair) -> Iterator[Scheduler]:
    with guessed(pair) as scheduler:
        yield scheduler


def test_greedy_replies_are_those_of_the_engine_alone(scheduler: Scheduler, pair: Pair) -> None:
    one, recorder = submit(scheduler, tokens := prompt(LENGTH, 1))
    steps = run(scheduler)
    assert len(recorder.tokens) == 60
    assert 0 <= one.timings.num_accepted < one.timings.num_drafted, "some are right, and some are not"
    if pair == LAYER:
        assert one.timings.num_accepted > 15
        assert steps < 50
    elif pair[0] == pair[1]:
        assert one.timings.num_accepted > 30
        assert steps < 40
    assert one.timings.drafted_from == {source(pair): one.timings.num_accepted}
    scheduler.cache.check_integrity()
    held = scheduler.engine.memory.length(one.turn.seq)
    assert one.turn.sequence.tokens.tolist() == [*tokens.tolist(), *recorder.tokens][:held]
    assert_greedy(scheduler.engine, tokens, recorder.tokens)


def test_what_follows_is_as_if_nothing_was_drafted(scheduler: Scheduler, pair: Pair) -> None:
    _, before = submit(scheduler, tokens := prompt(LENGTH, 2))
    run(scheduler)
    scheduler.tidy()
    following = np.concatenate([tokens, np.array(before.tokens, np.int32), prompt(9, 3)])
    one, recorder = submit(scheduler, following, max_tokens=30)
    run(scheduler)
    assert recorder.report is not None
    assert recorder.report.reused >= LENGTH + 50
    if pair == LAYER:
        assert one.timings.num_accepted > 0, "it is followed from where the conversation went on"
    else:
        model = model_of(scheduler)
        assert model._turn is not None
        assert model._turn.report.reused >= LENGTH - 1, "the draft model goes on as well"
        model.cache.check_integrity()
    assert_greedy(scheduler.engine, following, recorder.tokens)


@pytest.mark.parametrize("pair", [LAYER], ids="-".join)
def test_a_prompt_that_is_known_already_has_drafts_after_its_first_token(scheduler: Scheduler) -> None:
    """Nothing of the prompt is decoded: the layer knows only what comes after it."""
    tokens = prompt(LENGTH, 5)
    for _ in range(2):
        one, recorder = submit(scheduler, tokens)
        run(scheduler)
        scheduler.tidy()
        assert one.timings.num_accepted > 0
    assert recorder.report is not None
    assert recorder.report.reused == LENGTH
    assert_greedy(scheduler.engine, tokens, recorder.tokens)


@pytest.mark.parametrize("pair", [DENSE, HYBRID, LAYER], ids="-".join)
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


@pytest.mark.parametrize("pair", [DENSE, LAYER], ids="-".join)
def test_what_promises_most_drafts(pair: Pair) -> None:
    """A reply that a tenant has had before is copied, and what is known of no reply is guessed."""
    with guessed(pair, drafts=True) as scheduler:
        tokens = prompt(LENGTH, 20)
        first, _ = submit(scheduler, tokens)
        run(scheduler)
        assert first.timings.drafted_from[source(pair)] > (0 if pair == LAYER else 10)
        again, recorder = submit(scheduler, tokens)
        run(scheduler)
        assert_greedy(scheduler.engine, tokens, recorder.tokens)
        assert again.timings.num_accepted - again.timings.drafted_from.get(source(pair), 0) > 20


@pytest.mark.parametrize("pair", [DENSE, LAYER], ids="-".join)
def test_sampling_draws_as_without_drafts(pair: Pair) -> None:
    sampling = Sampling(temperature=0.3, seed=7, repeat_penalty=1.1, presence_penalty=0.2)
    main, draft = pair
    replies = []
    for is_drafted in (False, True):
        with scheduler_for(main, draft_model=draft if is_drafted else "", mtp=is_drafted and not draft) as scheduler:
            one, recorder = submit(scheduler, prompt(LENGTH, 30), max_tokens=80, sampling=sampling)
            run(scheduler)
            replies.append(recorder.tokens)
    assert replies[0] == replies[1]
    assert one.timings.num_accepted > 0


def test_forgotten_with_its_tenant() -> None:
    with guessed(DENSE) as scheduler:
        submit(scheduler, prompt(LENGTH, 40), namespace="one")
        run(scheduler)
        scheduler.tidy()
        assert model_of(scheduler).cache.ram.budget.used_bytes > 0
        assert scheduler.drafter is not None
        scheduler.drafter.forget(lambda name: name == "one")
        assert model_of(scheduler).cache.ram.budget.used_bytes == 0
        assert model_of(scheduler).cache.memory.length(0) == 0
