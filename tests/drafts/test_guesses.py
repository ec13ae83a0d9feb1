"""Guessed drafts are as long as pays: by how often they were right, and by the time of a guess."""

from collections.abc import Iterator
from random import Random
from typing import NamedTuple

import numpy as np
import pytest

from leftoff.cache.cache import Cache
from leftoff.drafts.batch_times import BatchTimes
from leftoff.drafts.drafter import Drafter
from leftoff.drafts.guesses import Guesses, HeadGuesser, Reply
from leftoff.drafts.trail import Draft, DraftSource
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.head import HeadContext
from leftoff.engine.model_settings import ModelSettings
from leftoff.types import Prompt
from tests.factory import MTP, model_path

LIKE_A_GPU = {1: 0.010, 8: 0.0105, 64: 0.015}
LIKE_A_HYBRID = {1: 0.010, 2: 0.0125, 8: 0.0145, 64: 0.03}
LIKE_A_CPU = {1: 0.010, 2: 0.012, 8: 0.024, 64: 0.16}
COMPUTE_BOUND = {1: 0.010, 64: 0.64}
NUM_TOKENS = 2000
NEXT = np.array([300], np.int32)


class Setting(NamedTuple):
    head: HeadContext
    reply: Reply


@pytest.fixture(scope="module")
def setting() -> Iterator[Setting]:
    settings, tokens = ContextSettings(num_cells=256, num_sequences=1, threads=1), np.arange(300, 340, dtype=np.int32)
    with LlamaEngine.open(model_path(MTP), settings, model_settings=ModelSettings(mtp=True)) as engine:
        cache = Cache(engine.memory, num_slots=1, budget_bytes=1 << 20)
        turn = cache.begin(Prompt(tokens))
        assert turn is not None
        assert engine.head is not None
        engine.decode([Work(turn.seq, tokens)])
        cache.advance(turn, tokens)
        yield Setting(engine.head, Reply("", turn, Work(turn.seq, NEXT)))


def a_drafter(setting: Setting, seconds: dict[int, float], step_ms: float) -> Drafter:
    """Of a layer that was right before: a new one is tried with short drafts."""
    times = BatchTimes(seconds)
    guesses = [Guesses(HeadGuesser(setting.head), times, step_ms, clock=lambda: 0.0)]
    guesses[0].reach = 16
    return Drafter(times, decodes_again=True, most_drafted=6, guesses=guesses, has_trails=False)


def guessed(drafter: Drafter, reply: Reply, most: int = 100) -> int:
    draft = drafter.guess(reply, most)
    assert draft is None or draft.source is DraftSource.MTP
    return len(draft.tokens) if draft is not None else 0


def test_the_length_follows_the_times(setting: Setting) -> None:
    assert guessed(a_drafter(setting, LIKE_A_GPU, 0.0), setting.reply) > 2
    assert guessed(a_drafter(setting, LIKE_A_GPU, 0.0), setting.reply, most=1) == 1
    assert guessed(a_drafter(setting, LIKE_A_GPU, 0.0), setting.reply, most=0) == 0
    assert 0 < guessed(a_drafter(setting, LIKE_A_GPU, 1.0), setting.reply) < 6
    for never in (a_drafter(setting, LIKE_A_GPU, 9.0), a_drafter(setting, COMPUTE_BOUND, 0.0)):
        assert not never._promise(never.guesses[0], setting.reply, 100).length
        assert guessed(never, setting.reply) == 1, "it is tried at first, whether that pays or not"


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
    assert not drafter._promise(drafter.guesses[0], setting.reply, 100).length


def test_what_does_not_pay_is_tried_again_now_and_then(setting: Setting) -> None:
    times = BatchTimes(COMPUTE_BOUND)
    guesses = [Guesses(Simulated(), times, 0.0, clock=lambda: 0.0)]
    drafter = Drafter(times, decodes_again=True, guesses=guesses, has_trails=False)
    tries = []
    for number in range(8000):
        draft = drafter.guess(setting.reply, 100)
        if draft is not None:
            assert len(draft.tokens) == 1
            tries.append(number)
            drafter.verified(draft, 1, 0)
    assert tries[0] == 0, "it begins with the time of two tokens, and a wrong one takes two"
    assert len(tries) > 5
    waited = np.diff(tries)
    assert waited[0] > 150, "a hundredth of the time"
    assert np.all(waited[1:4] > 1.5 * waited[:3]), "they get rarer"
    while (draft := drafter.guess(setting.reply, 100)) is None:
        pass
    drafter.verified(draft, 1, 1)
    assert drafter.guess(setting.reply, 100) is not None, "it was right"


def test_of_a_sequence_that_is_not_known_nothing_is_guessed(setting: Setting) -> None:
    drafter = a_drafter(setting, LIKE_A_GPU, 0.0)
    other = Work(setting.reply.work.seq, np.array([300, 301], np.int32))
    assert drafter.guess(setting.reply._replace(work=other), 100) is None


def test_no_time_for_guesses_no_gain() -> None:
    times = BatchTimes(LIKE_A_GPU)
    assert times.best_gain() > times.best_gain(0.1) > 1.3 > times.best_gain(0.9)


class Simulated:
    """A guesser that has read everything. By its clock a guess takes `step_ms`."""

    source = DraftSource.MODEL

    def __init__(self, step_ms: float = 0.0) -> None:
        self.step_ms, self.now_ms = step_ms, 0.0
        self.num_pauses = 0

    def clock(self) -> float:
        return self.now_ms / 1000

    def attend(self, *, is_worth_it: bool) -> None:
        self.num_pauses += not is_worth_it

    def lag_ms(self, _: Reply) -> float:
        return 0.0

    def guess(self, _: Reply, most: int) -> list[int]:
        self.now_ms += most * self.step_ms
        return most * [1]


class Case(NamedTuple):
    """Each token is right with a chance. A guess takes `step` times as long as a token, a change of size `change`."""

    chance: float
    seconds: dict[int, float]
    step: float
    change: float
    decodes_again: bool

    def gains(self, reply: Reply, length: int | None = None) -> tuple[float, float]:
        """Of the first 384 tokens, and of those after: how many times faster they come than one at a time.

        With drafts of a `length`, or as long as the drafter wants. To pause takes the time of two tokens.
        """
        times, rng = BatchTimes(self.seconds, self.change * self.seconds[1]), Random(1)
        guesser, token_ms, true = Simulated(self.step * times.ms), times.ms, [*times.multiples]
        guesses = Guesses(guesser, times, guesser.step_ms, 2 * token_ms, guesser.clock)
        drafter = Drafter(times, decodes_again=self.decodes_again, guesses=[guesses], has_trails=False)
        took_ms, num_sure, num_before = [0.0], 1, 1
        while len(took_ms) <= NUM_TOKENS:
            if length is None:
                work = reply.work._replace(tokens=np.full(num_sure, 300, np.int32))
                draft = drafter.guess(reply._replace(work=work, num_left=200.0), 100)
            else:
                draft = Draft(guesser.guess(reply, min(length, 40 - num_sure)), 0, guesser.source)
            num_drafted = len(draft.tokens) if draft is not None else 0
            num_tokens = num_sure + num_drafted
            batch_ms = token_ms * (true[num_tokens] + self.change * (num_tokens == 1 < num_before))
            guesser.now_ms += batch_ms
            if length is None and (num_sure == 1 or num_drafted):
                times.saw(num_tokens, batch_ms)
            num_right = next((n for n in range(num_drafted) if rng.random() >= self.chance), num_drafted)
            if draft is not None and length is None:
                drafter.verified(draft, num_drafted, num_right)
            is_taken_back = self.decodes_again and num_right < num_drafted
            num_sure, num_before = num_sure + num_right + 1 if is_taken_back else 1, num_tokens
            took_ms += (1 + num_right) * [guesser.now_ms + 2 * token_ms * guesser.num_pauses]
        later_ms = took_ms[NUM_TOKENS] - took_ms[384]
        return token_ms * 384 / took_ms[384], token_ms * (NUM_TOKENS - 384) / later_ms


@pytest.mark.parametrize("decodes_again", [False, True])
@pytest.mark.parametrize("change", [0.0, 1.0, 3.5])
@pytest.mark.parametrize("seconds", [LIKE_A_GPU, LIKE_A_HYBRID, LIKE_A_CPU])
@pytest.mark.parametrize("step", [0.02, 0.125, 0.3])
def test_who_is_wrong_costs_little(
    setting: Setting, step: float, seconds: dict[int, float], change: float, decodes_again: bool
) -> None:
    first, later = Case(0.0, seconds, step, change, decodes_again).gains(setting.reply)
    assert first > (0.98 if change < 2 else 0.975), "the first credit and a pause"
    assert later > 0.99


@pytest.mark.parametrize("decodes_again", [False, True])
@pytest.mark.parametrize("seconds", [LIKE_A_GPU, LIKE_A_HYBRID, LIKE_A_CPU])
@pytest.mark.parametrize("change", [1.0, 3.5])
@pytest.mark.parametrize("chance", [1.0, 0.95, 0.8, 0.6])
def test_who_is_often_right_gains_nearly_as_with_the_best_length(
    setting: Setting, chance: float, change: float, seconds: dict[int, float], decodes_again: bool
) -> None:
    """A guess takes an eighth of a token's time."""
    case = Case(chance, seconds, 0.125, change, decodes_again)
    first, later = case.gains(setting.reply)
    best = max(case.gains(setting.reply, length)[1] for length in (1, 2, 4, 6, 12))
    assert later > 0.93 * best, (first, later, best)
    assert first > 0.75 * best, (first, later, best)


def test_short_drafts_that_are_right_become_long_ones(setting: Setting) -> None:
    """At load it seemed that no draft of a few tokens pays: the steps after a batch of another size are slow there."""
    true, guesser = BatchTimes(LIKE_A_GPU).multiples, Simulated(1.25)
    at_load = {size: seconds + 0.010 * (size > 1) for size, seconds in (LIKE_A_GPU | {2: 0.010}).items()}
    times = BatchTimes(at_load)
    guesses = [Guesses(guesser, times, 1.25, clock=guesser.clock)]
    drafter = Drafter(times, decodes_again=True, guesses=guesses, has_trails=False)
    lengths = []
    for _ in range(400):
        draft = drafter.guess(setting.reply, 100)
        lengths.append(len(draft.tokens) if draft is not None else 0)
        drafter.times.saw(1 + lengths[-1], 10 * true[1 + lengths[-1]])
        if draft is not None:
            drafter.verified(draft, lengths[-1], lengths[-1])
    assert lengths[0] <= 1
    assert min(lengths[-100:]) >= 8


@pytest.mark.parametrize("num_sure", [63, 64, 200])
def test_many_tokens_that_are_decoded_again_come_without_a_guess(setting: Setting, num_sure: int) -> None:
    times = BatchTimes(LIKE_A_GPU)
    guesses = [Guesses(Simulated(), times, 0.0)]
    guesses[0].reach = 16
    drafter = Drafter(times, decodes_again=True, guesses=guesses, has_trails=False)
    work = setting.reply.work._replace(tokens=np.full(num_sure, 300, np.int32))
    draft = drafter.guess(setting.reply._replace(work=work), 100)
    assert (0 if draft is None else len(draft.tokens)) == max(0, 64 - num_sure)
