"""Replies with drafts of the model's next-token layer: the same tokens as without, and fewer steps."""

from collections.abc import Iterator

import numpy as np
import pytest

from leftoff.sampling import Sampling
from leftoff.scheduler.job import Finish, Job
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Prompt, Tokens
from tests.factory import MTP, small_vocabulary
from tests.scheduler.conftest import scheduler_for
from tests.scheduler.recorder import Recorder, assert_greedy, run

LENGTH = 90


def prompt(num_tokens: int, seed: int) -> Tokens:
    return np.random.default_rng(seed).choice(small_vocabulary().words, num_tokens).astype(np.int32)


def submit(scheduler: Scheduler, tokens: Tokens, max_tokens: int = 60, **changes: object) -> tuple[Run, Recorder]:
    recorder = Recorder()
    one = Run(Job(Prompt(tokens), max_tokens=max_tokens, ignore_end=True, **changes), recorder)  # type: ignore[arg-type]
    scheduler.submit(one)
    return one, recorder


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    with scheduler_for(MTP, mtp=True, num_cells=2048) as scheduler:
        yield scheduler


def test_greedy_replies_come_in_fewer_steps(scheduler: Scheduler) -> None:
    one, recorder = submit(scheduler, tokens := prompt(LENGTH, 1))
    steps = run(scheduler)
    assert len(recorder.tokens) == 60
    assert 15 < one.timings.num_accepted < one.timings.num_drafted, "some are right, and some are not"
    assert one.timings.drafted_from == {"mtp": one.timings.num_accepted}
    assert steps < 50
    scheduler.cache.check_integrity()
    held = scheduler.engine.memory.length(one.turn.seq)
    assert one.turn.sequence.tokens.tolist() == [*tokens.tolist(), *recorder.tokens][:held]
    assert_greedy(scheduler.engine, tokens, recorder.tokens)


def test_what_follows_is_as_if_nothing_was_drafted(scheduler: Scheduler) -> None:
    _, before = submit(scheduler, tokens := prompt(LENGTH, 2))
    run(scheduler)
    scheduler.tidy()
    following = np.concatenate([tokens, np.array(before.tokens, np.int32), prompt(9, 3)])
    one, recorder = submit(scheduler, following, max_tokens=30)
    run(scheduler)
    assert recorder.report is not None
    assert recorder.report.reused >= LENGTH + 50
    assert_greedy(scheduler.engine, following, recorder.tokens)
    assert one.timings.num_accepted > 0, "it is followed from where the conversation went on"


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


@pytest.mark.parametrize("most", [1, 2, 7, 8, 9])
def test_at_most_as_many_as_asked_for(scheduler: Scheduler, most: int) -> None:
    one, recorder = submit(scheduler, tokens := prompt(LENGTH, 6), max_tokens=most)
    run(scheduler)
    assert len(recorder.tokens) == most
    assert recorder.finish is Finish.LENGTH
    assert scheduler.engine.memory.length(one.turn.seq) < LENGTH + most
    assert_greedy(scheduler.engine, tokens, recorder.tokens)


def test_cancelled_between_steps(scheduler: Scheduler) -> None:
    one, recorder = submit(scheduler, tokens := prompt(LENGTH, 7), max_tokens=200)
    while one.timings.num_accepted < 5:
        assert scheduler.step()
    scheduler.cancel(one)
    run(scheduler)
    assert recorder.finish is Finish.CANCELLED
    scheduler.cache.check_integrity()
    assert_greedy(scheduler.engine, tokens, recorder.tokens)


def test_beside_others_nothing_is_drafted_and_then_it_goes_on(scheduler: Scheduler) -> None:
    runs = [(tokens, *submit(scheduler, tokens, max_tokens=most)) for tokens, most in _prompts(20, 20, 80)]
    run(scheduler)
    for tokens, _, recorder in runs:
        assert_greedy(scheduler.engine, tokens, recorder.tokens)
    assert [one.timings.num_drafted > 0 for _, one, _ in runs] == [False, False, True]


def _prompts(*lengths: int) -> Iterator[tuple[Tokens, int]]:
    for seed, most in enumerate(lengths, 10):
        yield prompt(LENGTH + seed, seed), most


def test_the_tree_comes_first() -> None:
    """A reply that a tenant has had before is copied; the layer guesses where nothing is known."""
    with scheduler_for(MTP, drafts=True, mtp=True, num_cells=2048) as scheduler:
        tokens = prompt(LENGTH, 20)
        first, _ = submit(scheduler, tokens)
        run(scheduler)
        assert set(first.timings.drafted_from) >= {"mtp"}
        again, recorder = submit(scheduler, tokens)
        run(scheduler)
        assert_greedy(scheduler.engine, tokens, recorder.tokens)
        assert again.timings.num_accepted - again.timings.drafted_from.get("mtp", 0) > 20


def test_sampling_draws_as_without_drafts() -> None:
    sampling = Sampling(temperature=0.3, seed=7, repeat_penalty=1.1, presence_penalty=0.2)
    replies = []
    for mtp in (False, True):
        with scheduler_for(MTP, mtp=mtp) as scheduler:
            one, recorder = submit(scheduler, prompt(LENGTH, 30), max_tokens=80, sampling=sampling)
            run(scheduler)
            replies.append(recorder.tokens)
    assert replies[0] == replies[1]
    assert one.timings.num_accepted > 0
