"""Guessed drafts are as long as pays: by how often they were right, and by the time of a guess."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest

from leftoff.cache.cache import Cache
from leftoff.drafts.batch_times import BatchTimes
from leftoff.drafts.drafter import Drafter
from leftoff.drafts.guesses import Guesses, MtpGuesser, Reply
from leftoff.drafts.trail import DraftSource
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.model_settings import ModelSettings
from leftoff.engine.mtp import MtpContext
from leftoff.types import Prompt
from tests.factory import MTP, model_path

LIKE_A_GPU = {1: 0.010, 8: 0.0105, 64: 0.015}
COMPUTE_BOUND = {1: 0.010, 64: 0.64}
NEXT = np.array([300], np.int32)


class Setting(NamedTuple):
    mtp: MtpContext
    reply: Reply


@pytest.fixture(scope="module")
def setting() -> Iterator[Setting]:
    settings, tokens = ContextSettings(num_cells=256, num_sequences=1, threads=1), np.arange(300, 340, dtype=np.int32)
    with LlamaEngine.open(model_path(MTP), settings, model_settings=ModelSettings(mtp=True)) as engine:
        cache = Cache(engine.memory, num_slots=1, budget_bytes=1 << 20)
        turn = cache.begin(Prompt(tokens))
        assert turn is not None
        assert engine.mtp is not None
        engine.decode([Work(turn.seq, tokens)])
        cache.advance(turn, tokens)
        yield Setting(engine.mtp, Reply("", turn, Work(turn.seq, NEXT)))


def a_drafter(setting: Setting, seconds: dict[int, float], step_ms: float) -> Drafter:
    guesses = [Guesses(MtpGuesser(setting.mtp), step_ms)]
    return Drafter(BatchTimes(seconds), decodes_again=True, most_drafted=6, guesses=guesses, has_trails=False)


def guessed(drafter: Drafter, reply: Reply, most: int = 100) -> int:
    draft = drafter.guess(reply, most)
    assert draft is None or draft.source is DraftSource.MTP
    return len(draft.tokens) if draft is not None else 0


def test_the_length_follows_the_times(setting: Setting) -> None:
    assert guessed(a_drafter(setting, LIKE_A_GPU, 0.0), setting.reply) > 2
    assert guessed(a_drafter(setting, LIKE_A_GPU, 0.0), setting.reply, most=1) == 1
    assert guessed(a_drafter(setting, LIKE_A_GPU, 0.0), setting.reply, most=0) == 0
    assert 0 < guessed(a_drafter(setting, LIKE_A_GPU, 1.0), setting.reply) < 6
    assert guessed(a_drafter(setting, LIKE_A_GPU, 9.0), setting.reply) == 0, "a guess takes nearly as long as a token"
    assert guessed(a_drafter(setting, COMPUTE_BOUND, 0.0), setting.reply) == 0


def test_the_length_follows_what_was_right(setting: Setting) -> None:
    drafter = a_drafter(setting, LIKE_A_GPU, 0.0)
    draft = drafter.guess(setting.reply, 100)
    assert draft is not None
    for _ in range(200):
        drafter.verified(draft, 6, 6)
    assert guessed(drafter, setting.reply) == 6
    for _ in range(200):
        drafter.verified(draft, 6, 1)
    assert guessed(drafter, setting.reply) == 1, "the first is right, the second never"
    for _ in range(200):
        drafter.verified(draft, 1, 0)
    assert guessed(drafter, setting.reply) == 0


def test_what_does_not_pay_is_tried_again_now_and_then(setting: Setting) -> None:
    drafter = a_drafter(setting, COMPUTE_BOUND, 0.0)
    lengths = [guessed(drafter, setting.reply) for _ in range(1000)]
    assert set(lengths) == {0, 1}
    assert 1 < sum(lengths) <= 5, "a wrong one takes two tokens longer: that is one in a hundred"
    draft = drafter.guess(setting.reply, 100)
    while draft is None:
        draft = drafter.guess(setting.reply, 100)
    drafter.verified(draft, 1, 1)
    assert guessed(drafter, setting.reply) == 1, "it was right"


def test_of_a_sequence_that_is_not_known_nothing_is_guessed(setting: Setting) -> None:
    drafter = a_drafter(setting, LIKE_A_GPU, 0.0)
    other = Work(setting.reply.work.seq, np.array([300, 301], np.int32))
    assert drafter.guess(setting.reply._replace(work=other), 100) is None


def test_no_time_for_guesses_no_gain() -> None:
    times = BatchTimes(LIKE_A_GPU)
    assert times.best_gain() > times.best_gain(0.1) > 1.3 > times.best_gain(0.9)


class Ready:
    """A guesser that has read everything."""

    source = DraftSource.MODEL

    def lag_ms(self, _: Reply) -> float:
        return 0.0

    def guess(self, _: Reply, most: int) -> list[int]:
        return most * [1]


@pytest.mark.parametrize("is_right", [True, False])
def test_who_is_right_gains_and_who_is_wrong_costs_little(setting: Setting, is_right: bool) -> None:
    """By the clock of a GPU, on which a guess takes an eighth of a token's time."""
    guesses = Guesses(Ready(), 0.0)
    drafter = Drafter(BatchTimes(LIKE_A_GPU), decodes_again=False, guesses=[guesses], has_trails=False)
    token_ms = drafter.times.ms
    step_ms, took_ms, num_tokens = token_ms / 8, [0.0], [0]
    while num_tokens[-1] < 4000:
        guesses.step_ms = step_ms  # here it takes no time
        draft = drafter.guess(setting.reply, 100)
        num_drafted = len(draft.tokens) if draft is not None else 0
        if draft is not None:
            drafter.verified(draft, num_drafted, num_drafted if is_right else 0)
        took_ms.append(took_ms[-1] + token_ms * drafter.times.multiples[1 + num_drafted] + step_ms * num_drafted)
        num_tokens.append(num_tokens[-1] + 1 + (num_drafted if is_right else 0))
    half = next(index for index, num in enumerate(num_tokens) if num >= 2000)  # by then it has learnt
    gain = token_ms * (num_tokens[-1] - num_tokens[half]) / (took_ms[-1] - took_ms[half])
    assert gain > 2.5 if is_right else 0.98 <= gain < 1, gain
    if not is_right:
        assert took_ms[-1] < 1.02 * token_ms * num_tokens[-1], "with what it took to learn that"


def test_short_drafts_that_are_right_become_long_ones(setting: Setting) -> None:
    """At load it seemed that no draft of a few tokens pays: the steps after a batch of another size are slow there."""
    true = BatchTimes(LIKE_A_GPU).multiples
    at_load = {size: seconds + 0.010 * (size > 1) for size, seconds in (LIKE_A_GPU | {2: 0.010}).items()}
    drafter = Drafter(BatchTimes(at_load), decodes_again=True, guesses=[Guesses(Ready(), 0.0)], has_trails=False)
    lengths = []
    for _ in range(400):
        drafter.guesses[0].step_ms = 1.25
        draft = drafter.guess(setting.reply, 100)
        lengths.append(len(draft.tokens) if draft is not None else 0)
        drafter.times.saw(1 + lengths[-1], 10 * true[1 + lengths[-1]])
        if draft is not None:
            drafter.verified(draft, lengths[-1], lengths[-1])
    assert lengths[0] <= 1
    assert min(lengths[-100:]) >= 8


@pytest.mark.parametrize("num_sure", [63, 64, 200])
def test_many_tokens_that_are_decoded_again_come_without_a_guess(setting: Setting, num_sure: int) -> None:
    drafter = Drafter(BatchTimes(LIKE_A_GPU), decodes_again=True, guesses=[Guesses(Ready(), 0.0)], has_trails=False)
    work = setting.reply.work._replace(tokens=np.full(num_sure, 300, np.int32))
    draft = drafter.guess(setting.reply._replace(work=work), 100)
    assert (0 if draft is None else len(draft.tokens)) == max(0, 64 - num_sure)
