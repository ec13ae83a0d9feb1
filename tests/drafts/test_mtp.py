"""Drafts of the next-token layer are as long as pays: by how often they were right, and by the time of a guess."""

from collections.abc import Iterator

import numpy as np
import pytest

from leftoff.drafts.batch_times import BatchTimes
from leftoff.drafts.drafter import Drafter
from leftoff.drafts.mtp import MtpDrafts
from leftoff.drafts.trail import DraftSource
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.model_settings import ModelSettings
from tests.factory import MTP, model_path

LIKE_A_GPU = {1: 0.010, 8: 0.0105, 64: 0.015}
COMPUTE_BOUND = {1: 0.010, 64: 0.64}
NEXT = Work(0, np.array([300], np.int32))


@pytest.fixture(scope="module")
def engine() -> Iterator[LlamaEngine]:
    settings = ContextSettings(num_cells=256, num_sequences=1, threads=1)
    with LlamaEngine.open(model_path(MTP), settings, model_settings=ModelSettings(mtp=True)) as engine:
        engine.decode([Work(0, np.arange(300, 340, dtype=np.int32))])
        yield engine


def a_drafter(engine: LlamaEngine, seconds: dict[int, float], step_ms: float) -> Drafter:
    assert engine.mtp is not None
    mtp = MtpDrafts(engine.mtp, step_ms)
    return Drafter(BatchTimes(seconds), decodes_again=True, most_drafted=6, mtp=mtp, has_trails=False)


def guessed(drafter: Drafter, most: int = 100) -> int:
    draft = drafter.guess(NEXT, 40, most)
    assert draft is None or draft.source is DraftSource.MTP
    return len(draft.tokens) if draft is not None else 0


def test_the_length_follows_the_times(engine: LlamaEngine) -> None:
    assert guessed(a_drafter(engine, LIKE_A_GPU, 0.0)) > 2
    assert guessed(a_drafter(engine, LIKE_A_GPU, 0.0), most=1) == 1
    assert guessed(a_drafter(engine, LIKE_A_GPU, 0.0), most=0) == 0
    assert 0 < guessed(a_drafter(engine, LIKE_A_GPU, 1.0)) < 6
    assert guessed(a_drafter(engine, LIKE_A_GPU, 9.0)) == 0, "a guess takes nearly as long as a token"
    assert guessed(a_drafter(engine, COMPUTE_BOUND, 0.0)) == 0


def test_the_length_follows_what_was_right(engine: LlamaEngine) -> None:
    drafter = a_drafter(engine, LIKE_A_GPU, 0.0)
    draft = drafter.guess(NEXT, 40, 100)
    assert draft is not None
    for _ in range(200):
        drafter.verified(draft, 6, 6)
    assert guessed(drafter) == 6
    for _ in range(200):
        drafter.verified(draft, 6, 1)
    assert guessed(drafter) == 1, "the first is right, the second never"
    for _ in range(200):
        drafter.verified(draft, 1, 0)
    assert guessed(drafter) == 0


def test_what_does_not_pay_is_tried_again_now_and_then(engine: LlamaEngine) -> None:
    drafter = a_drafter(engine, COMPUTE_BOUND, 0.0)
    lengths = [guessed(drafter) for _ in range(200)]
    assert set(lengths) == {0, 1}
    assert 1 < sum(lengths) < 5


def test_of_a_sequence_that_is_not_known_nothing_is_guessed(engine: LlamaEngine) -> None:
    drafter = a_drafter(engine, LIKE_A_GPU, 0.0)
    assert drafter.guess(NEXT, 17, 100) is None


def test_no_time_for_guesses_no_gain() -> None:
    times = BatchTimes(LIKE_A_GPU)
    assert times.best_gain() > times.best_gain(0.1) > 1.3 > times.best_gain(0.9)
