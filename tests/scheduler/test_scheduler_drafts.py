"""Replies with drafts: the same tokens as without, wherever they end, and nothing but accepted tokens is kept."""

from collections.abc import Iterator

import numpy as np
import pytest

from lab.speed.scripted import Script
from leftoff.drafts.trail import Draft, Trail
from leftoff.engine.memory.base import MemoryKind
from leftoff.sampling import Sampling
from leftoff.scheduler.job import Finish, Job
from leftoff.scheduler.run import Run
from leftoff.scheduler.scheduler import Scheduler
from leftoff.types import Prompt, Tokens
from tests.factory import ARCHITECTURES
from tests.scheduler.conftest import scheduler_for
from tests.scheduler.recorder import Recorder, assert_greedy, run
from tests.scheduler.recorder import prompt as random_prompt

LENGTH = 90  # past the window of the sliding-window models


def prompt(scheduler: Scheduler, num_tokens: int, seed: int) -> Tokens:
    """Without tokens that end a reply: it may be repeated as one."""
    tokens = random_prompt(scheduler, num_tokens, seed)
    tokens[np.isin(tokens, [*scheduler.engine.model.vocabulary.end_tokens])] = 99
    return tokens


def submit(
    scheduler: Scheduler, tokens: Tokens, script: list[int] | None = None, max_tokens: int = 40, **changes: object
) -> tuple[Run, Recorder]:
    recorder = Recorder()
    constraint = Script(script) if script is not None else None
    job = Job(Prompt(tokens), max_tokens=max_tokens, constraint=constraint, ignore_end=script is None, **changes)  # type: ignore[arg-type]
    one = Run(job, recorder)
    scheduler.submit(one)
    return one, recorder


def quoting(tokens: Tokens) -> list[int]:
    """A reply that repeats most of its prompt, with a few tokens changed: some drafts are right in part."""
    reply: list[int] = tokens[5:60].tolist()
    for index in (20, 21, 40):
        reply[index] = (reply[index] + 1) % 100
    return reply


@pytest.fixture(scope="module", params=ARCHITECTURES)
def architecture(request: pytest.FixtureRequest) -> str:
    """All tests of one come after each other: they have the same engine."""
    return str(request.param)


@pytest.fixture
def scheduler(architecture: str) -> Iterator[Scheduler]:
    with scheduler_for(architecture, drafts=True, num_cells=2048) as scheduler:
        if not scheduler.engine.memory.can_draft:
            pytest.skip(f"{scheduler.engine.memory.kind.value} memory takes no drafts")
        yield scheduler


def test_a_scripted_reply_comes_in_fewer_steps_and_is_whole(scheduler: Scheduler) -> None:
    tokens = prompt(scheduler, LENGTH, 1)
    one, recorder = submit(scheduler, tokens, quoting(tokens), max_tokens=200)
    steps = run(scheduler)
    assert recorder.tokens == quoting(tokens)
    assert recorder.finish is Finish.END
    assert one.timings.num_generated == 55
    assert 20 < one.timings.num_accepted <= one.timings.num_drafted
    assert sum(one.timings.drafted_from.values()) == one.timings.num_accepted
    assert steps < 45
    scheduler.cache.check_integrity()
    held = scheduler.engine.memory.length(one.turn.seq)
    whole = [*tokens.tolist(), *quoting(tokens)]
    assert one.turn.sequence.tokens.tolist() == whole[:held], "what stays is what was said"
    assert held == LENGTH + 54, "all but the last one"


def test_what_follows_is_as_if_nothing_was_drafted(scheduler: Scheduler) -> None:
    """The next turn resumes from the end of the reply, and its greedy tokens are those of the engine alone."""
    tokens = prompt(scheduler, LENGTH, 2)
    submit(scheduler, tokens, quoting(tokens), max_tokens=200)
    run(scheduler)
    scheduler.tidy()
    following = np.concatenate([tokens, np.array(quoting(tokens), np.int32), prompt(scheduler, 9, 3)])
    _, recorder = submit(scheduler, following, max_tokens=12)
    run(scheduler)
    assert recorder.report is not None
    assert recorder.report.reused >= LENGTH + 54 or not scheduler.engine.memory.has_state
    assert_greedy(scheduler.engine, following, recorder.tokens)


def test_greedy_replies_are_those_of_the_engine_alone(scheduler: Scheduler) -> None:
    """Random models repeat themselves soon: their greedy replies are drafted in long pieces."""
    tokens = np.tile(prompt(scheduler, 30, 4), 3)
    one, recorder = submit(scheduler, tokens, max_tokens=60)
    run(scheduler)
    assert len(recorder.tokens) == 60
    assert_greedy(scheduler.engine, tokens, recorder.tokens)
    assert one.timings.num_accepted <= one.timings.num_drafted


@pytest.mark.parametrize("architecture", ["qwen35", "llama", "mamba2"], indirect=True)
class TestEnds:
    """Wherever a reply ends within a draft, nothing comes after it."""

    def test_at_most_as_many_as_asked_for(self, scheduler: Scheduler) -> None:
        tokens = prompt(scheduler, LENGTH, 5)
        for most in (1, 2, 7, 8, 9, 15):
            one, recorder = submit(scheduler, tokens, quoting(tokens), max_tokens=most)
            run(scheduler)
            assert recorder.tokens == quoting(tokens)[:most]
            assert recorder.finish is Finish.LENGTH
            assert scheduler.engine.memory.length(one.turn.seq) == LENGTH + most - 1, "all but the last one"

    def test_a_sink_that_has_enough(self, scheduler: Scheduler) -> None:
        tokens = prompt(scheduler, LENGTH, 6)
        for limit in (3, 5, 6, 11):
            recorder = Recorder(limit=limit)
            one = Run(Job(Prompt(tokens), constraint=Script(quoting(tokens))), recorder)
            scheduler.submit(one)
            run(scheduler)
            assert recorder.tokens == quoting(tokens)[:limit]
            assert recorder.finish is Finish.STOPPED
            scheduler.cache.check_integrity()
            assert scheduler.engine.memory.length(one.turn.seq) == LENGTH + limit - 1, "all but the last one"

    def test_the_end_token_is_never_drafted(self, scheduler: Scheduler) -> None:
        end = min(scheduler.engine.model.vocabulary.end_tokens)
        tokens = prompt(scheduler, LENGTH, 7)
        tokens[30] = end
        script = [*tokens[20:30].tolist(), end]
        one, recorder = submit(scheduler, tokens, script, max_tokens=100)
        run(scheduler)
        assert recorder.tokens == script[:-1]
        assert recorder.finish is Finish.END
        held = scheduler.engine.memory.length(one.turn.seq)
        assert end not in one.turn.sequence.tokens[LENGTH:held]

    def test_cancelled_between_steps(self, scheduler: Scheduler) -> None:
        tokens = prompt(scheduler, LENGTH, 8)
        one, recorder = submit(scheduler, tokens, quoting(tokens), max_tokens=100)
        while one.timings.num_accepted < 5:
            scheduler.step()
        scheduler.cancel(one)
        run(scheduler)
        assert recorder.finish is Finish.CANCELLED
        assert recorder.tokens == quoting(tokens)[: len(recorder.tokens)]
        scheduler.cache.check_integrity()

    def test_an_error_in_the_middle_of_a_draft_ends_this_reply(self, scheduler: Scheduler) -> None:
        class Faulty(Script):
            def accept(self, token: int) -> None:
                super().accept(token)
                if len(self._left) == 40:
                    raise RuntimeError("a fault of the constraint")

        tokens = prompt(scheduler, LENGTH, 9)
        recorder = Recorder()
        scheduler.submit(Run(Job(Prompt(tokens), constraint=Faulty(quoting(tokens))), recorder))
        run(scheduler)
        assert recorder.finish is Finish.FAILED
        _, recorder = submit(scheduler, tokens, quoting(tokens), max_tokens=100)
        run(scheduler)
        assert recorder.tokens == quoting(tokens)


def test_a_draft_is_as_long_as_pays_beside_the_others_of_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    with scheduler_for("llama", drafts=True, num_cells=2048) as scheduler:
        assert scheduler.drafter is not None
        draft, seen = scheduler.drafter.draft, set[tuple[int, int, int]]()

        def watched(trail: Trail, most: int, *, num_sure: int, num_others: int) -> Draft | None:
            seen.add((sum(not one.turn.is_reading for one in scheduler.runs), num_sure, num_others))
            return draft(trail, most, num_sure=num_sure, num_others=num_others)

        monkeypatch.setattr(scheduler.drafter, "draft", watched)
        for num_replies in (1, 3):
            for seed in range(num_replies):
                tokens = prompt(scheduler, LENGTH, 70 + seed)
                submit(scheduler, tokens, quoting(tokens), max_tokens=30)
            run(scheduler)
        assert {(1, 1, 0), (3, 1, 2)} <= seen
        assert all(num_others == num_replies - 1 for num_replies, _, num_others in seen)


def test_what_comes_after_the_end_of_a_reply_says_nothing_about_drafts(monkeypatch: pytest.MonkeyPatch) -> None:
    with scheduler_for("llama", drafts=True, num_cells=2048) as scheduler:
        assert scheduler.drafter is not None
        runs: list[Run] = []
        finishes: list[Finish | None] = []
        monkeypatch.setattr(scheduler.drafter, "verified", lambda *_: finishes.append(runs[-1].finish))
        tokens = prompt(scheduler, LENGTH, 11)
        for limit in range(5, 15):
            runs.append(Run(Job(Prompt(tokens), constraint=Script(quoting(tokens))), Recorder(limit=limit)))
            scheduler.submit(runs[-1])
            run(scheduler)
        assert len(finishes) >= 5
        assert {*finishes} == {None}


@pytest.mark.parametrize("architecture", ["qwen35", "llama", "gemma3"], indirect=True)
def test_beside_others_every_reply_is_its_own(scheduler: Scheduler) -> None:
    runs = []
    for seed in range(3):
        tokens = prompt(scheduler, LENGTH + seed, 10 + seed)
        runs.append((tokens, *submit(scheduler, tokens, quoting(tokens), max_tokens=200)))
    run(scheduler)
    for tokens, _, recorder in runs:
        assert recorder.tokens == quoting(tokens)
    drafted = [one.timings.num_drafted for _, one, _ in runs]
    if scheduler.engine.memory.kind is MemoryKind.ATTENTION:
        assert sum(drafted) > 0
    scheduler.cache.check_integrity()


def test_a_full_context_pauses_runs_and_loses_nothing() -> None:
    with scheduler_for("qwen35", drafts=True, num_cells=288, slots=2) as scheduler:
        runs = []
        for seed in range(2):
            tokens = prompt(scheduler, LENGTH, 20 + seed)
            runs.append((tokens, *submit(scheduler, tokens, quoting(tokens) * 2, max_tokens=110)))
        run(scheduler)
        for tokens, _, recorder in runs:
            assert recorder.tokens == (quoting(tokens) * 2)[:110]


def test_snapshots_of_a_long_reply_hold_only_what_was_said() -> None:
    with scheduler_for("qwen35", drafts=True, num_cells=4096) as scheduler:
        tokens = prompt(scheduler, LENGTH, 30)
        script = quoting(tokens) * 12
        submit(scheduler, tokens, script, max_tokens=600)
        run(scheduler)
        scheduler.tidy()
        whole = np.concatenate([tokens, np.array(script[:600], np.int32)])
        for length in (LENGTH + 150, LENGTH + 333, LENGTH + 590):
            following = np.concatenate([whole[:length], prompt(scheduler, 5, length)])
            _, recorder = submit(scheduler, following, max_tokens=6)
            run(scheduler)
            assert_greedy(scheduler.engine, following, recorder.tokens)


def test_tenants_do_not_draft_from_each_other() -> None:
    with scheduler_for("qwen35", drafts=True) as scheduler:
        secret = prompt(scheduler, LENGTH, 40)
        submit(scheduler, secret, quoting(secret), max_tokens=100, namespace="one")
        run(scheduler)
        probing = prompt(scheduler, LENGTH, 41)
        one, _ = submit(scheduler, probing, quoting(secret)[:20], max_tokens=100, namespace="two")
        run(scheduler)
        assert one.timings.num_drafted == 0
        same, _ = submit(scheduler, probing, quoting(secret)[:20], max_tokens=100, namespace="one")
        run(scheduler)
        assert same.timings.num_accepted > 5


@pytest.mark.parametrize("architecture", ["qwen35", "llama"], indirect=True)
def test_logprobs_are_those_of_each_position(scheduler: Scheduler) -> None:
    tokens = prompt(scheduler, LENGTH, 50)
    _, drafted = submit(scheduler, tokens, quoting(tokens), max_tokens=30, wants_logits=True)
    run(scheduler)
    with scheduler_for("qwen35" if scheduler.engine.memory.has_state else "llama", num_cells=2048) as plain:
        _, alone = submit(plain, tokens, quoting(tokens), max_tokens=30, wants_logits=True)
        run(plain)
    assert drafted.tokens == alone.tokens
    for one, other in zip(drafted.logits, alone.logits, strict=True):
        np.testing.assert_allclose(one, other, atol=0.05)
    assert not np.allclose(drafted.logits[10], drafted.logits[11], atol=0.05)


def test_sampling_draws_as_without_drafts() -> None:
    """A seed draws the same tokens: each is drawn from its own logits, with the penalties of those before it."""
    sampling = Sampling(temperature=0.3, seed=7, repeat_penalty=1.1, presence_penalty=0.2)
    replies = []
    for drafts in (False, True):
        with scheduler_for("llama", drafts=drafts) as scheduler:
            tokens = np.tile(prompt(scheduler, 20, 60), 4)
            one, recorder = submit(scheduler, tokens, max_tokens=80, sampling=sampling)
            run(scheduler)
            replies.append(recorder.tokens)
    assert replies[0] == replies[1]
    assert one.timings.num_drafted > 0
