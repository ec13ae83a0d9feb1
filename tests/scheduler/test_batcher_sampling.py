"""Replies that are sampled by several threads are those that one would sample."""

import threading
from collections.abc import Sequence

import pytest

from leftoff.engine.engine import LlamaEngine, Work
from leftoff.errors import LeftoffError
from leftoff.sampling import Sampling
from leftoff.scheduler.job import Finish, Job
from leftoff.scheduler.run import Run
from leftoff.types import Logits, Prompt
from tests.scheduler.conftest import scheduler_for
from tests.scheduler.recorder import Recorder, prompt, run

NUM_REPLIES, NUM_TOKENS = 6, 20


class BadConstraint:
    """Fails in the middle of a reply."""

    is_done = False

    def __init__(self) -> None:
        self.num_left = 3

    def mask(self, logits: Logits) -> bool:  # noqa: ARG002
        self.num_left -= 1
        if not self.num_left:
            raise LeftoffError("no more")
        return False

    def accept(self, token: int) -> None: ...


def replies(*, fails: int | None = None) -> list[Recorder]:
    recorders = [Recorder() for _ in range(NUM_REPLIES)]
    with scheduler_for("qwen35", slots=NUM_REPLIES) as scheduler:
        for number, recorder in enumerate(recorders):
            sampling = Sampling(temperature=1.0, top_k=20, seed=number, repeat_penalty=1.1)
            constraint = BadConstraint() if number == fails else None
            tokens = Prompt(prompt(scheduler, 30, seed=number))
            job = Job(tokens, sampling, max_tokens=NUM_TOKENS, constraint=constraint, ignore_end=True)
            scheduler.submit(Run(job, recorder))
        run(scheduler)
    return recorders


@pytest.fixture
def many_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leftoff.scheduler.batcher.num_cores", lambda: 8)
    monkeypatch.setattr("leftoff.scheduler.batcher._LARGE_VOCABULARY", 1)


@pytest.fixture(scope="module")
def expected() -> list[list[int]]:
    return [recorder.tokens for recorder in replies()]


@pytest.mark.usefixtures("many_cores")
def test_the_replies_are_the_same(expected: list[list[int]]) -> None:
    assert len({*map(tuple, expected)}) == NUM_REPLIES
    assert [recorder.tokens for recorder in replies()] == expected


@pytest.mark.usefixtures("many_cores")
def test_one_that_fails_does_not_take_the_others_with_it(expected: list[list[int]]) -> None:
    found = replies(fails=2)
    assert found[2].finish is Finish.FAILED
    assert str(found[2].error) == "no more"
    assert len(found[2].tokens) == 2
    assert [each.tokens for each in found[:2] + found[3:]] == expected[:2] + expected[3:]


@pytest.mark.usefixtures("many_cores")
def test_the_first_row_of_a_batch_is_asked_for_by_the_engine_s_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then llama.cpp sorts the rows, and nobody else may read them meanwhile."""
    is_sorted: list[bool] = []  # for each reply that was sampled beside the engine's thread
    has_asked = threading.Event()
    decode, logits, sample = LlamaEngine.decode, LlamaEngine.logits, Run.sample

    def watched_decode(self: LlamaEngine, works: Sequence[Work], *, is_awaited: bool = True) -> list[int]:
        has_asked.clear()
        return decode(self, works, is_awaited=is_awaited)

    def watched_logits(self: LlamaEngine, row: int) -> Logits:
        has_asked.set()
        return logits(self, row)

    def watched_sample(self: Run, row: int) -> None:
        if threading.current_thread() is not threading.main_thread():
            is_sorted.append(has_asked.is_set())
        sample(self, row)

    monkeypatch.setattr(LlamaEngine, "decode", watched_decode)
    monkeypatch.setattr(LlamaEngine, "logits", watched_logits)
    monkeypatch.setattr(Run, "sample", watched_sample)
    assert {recorder.finish for recorder in replies()} == {Finish.LENGTH}
    assert len(is_sorted) > NUM_TOKENS
    assert all(is_sorted)
