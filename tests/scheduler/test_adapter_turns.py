"""Runs with different adapters take turns: each set is served soon, and none of them step by step."""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from leftoff.adapters import NO_ADAPTERS, Adapter, AdapterSet
from leftoff.engine.adapter_file import read_lora
from leftoff.scheduler.adapter_turns import AdapterTurns
from leftoff.scheduler.job import Finish, Job
from leftoff.scheduler.run import Run
from leftoff.types import Prompt
from tests.factory import model_path
from tests.factory.adapters import lora_path
from tests.scheduler.conftest import scheduler_for
from tests.scheduler.recorder import Recorder, prompt
from tests.scheduler.recorder import run as run_all

SETS = [NO_ADAPTERS, *(AdapterSet.of([Adapter(digit * 64)]) for digit in "123")]


@dataclass
class One:
    adapters: AdapterSet


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def played(turns: AdapterTurns, clock: Clock, ones: list[One], num_steps: int, step_s: float = 0.01) -> list[int]:
    """The sets that were served, by their number."""
    served = []
    for _ in range(num_steps):
        group = next(turns.groups(ones))
        assert len({one.adapters for one in group}) == 1
        turns.serve(group[0].adapters)
        served.append(SETS.index(group[0].adapters))
        clock.now += step_s
    return served


def test_a_set_is_served_for_a_turn_and_then_the_next() -> None:
    turns = AdapterTurns(clock := Clock())
    turns.saw_switch(30.0)
    per_turn = round(turns.turn_s / 0.01)
    served = played(turns, clock, [One(SETS[1]), One(SETS[2]), One(SETS[1])], 10 * per_turn)
    assert 0.4 < served.count(1) / len(served) < 0.6
    num_switches = sum(one != other for one, other in itertools.pairwise(served))
    assert num_switches <= len(served) / (per_turn - 1)


@pytest.mark.parametrize("num_sets", [2, 4])
def test_no_set_waits_for_more_than_a_turn_of_each_other(num_sets: int) -> None:
    turns = AdapterTurns(clock := Clock())
    served = played(turns, clock, [One(each) for each in SETS[:num_sets]], 500)
    most = (num_sets - 1) * (turns.turn_s + 0.01) / 0.01
    for number in range(num_sets):
        at = [index for index, each in enumerate(served) if each == number]
        assert (
            max(later - earlier for earlier, later in itertools.pairwise(at)) <= most + 2
        )  # a turn ends with the step that passes its end


def test_sets_that_come_and_go_do_not_pass_one_that_waits() -> None:
    turns, waiting = AdapterTurns(clock := Clock()), One(SETS[1])
    for number in range(1000):
        fresh = One(AdapterSet.of([Adapter("9" * 64, 1 + number)]))
        group = next(turns.groups([fresh, waiting]))
        turns.serve(group[0].adapters)
        clock.now += 0.06
        if group == [waiting]:
            return
    pytest.fail("it was never served")


def test_one_set_alone_is_never_switched_from() -> None:
    turns = AdapterTurns(clock := Clock())
    assert played(turns, clock, [One(SETS[0])] * 3, 100) == [0] * 100
    assert not turns.has_switched


def test_runs_of_several_sets_reply_as_each_would_alone() -> None:
    model = model_path("llama")
    files = [read_lora(lora_path(model, seed), model, 1 << 20) for seed in (1, 2)]
    sets = [NO_ADAPTERS, *(AdapterSet.of([Adapter(file.fingerprint)]) for file in files)]
    with scheduler_for("llama", slots=6, loras=tuple(files)) as scheduler:
        tokens = [prompt(scheduler, 40, seed) for seed in range(2)]

        def ask(number: int) -> Recorder:
            recorder = Recorder()
            asked = Prompt(tokens[number % 2]).adapted(sets[number % 3])
            scheduler.submit(Run(Job(asked, max_tokens=24, ignore_end=True, wants_logits=True), recorder))
            return recorder

        together = [ask(number) for number in range(6)]
        run_all(scheduler)
        assert [each.finish for each in together] == [Finish.LENGTH] * 6
        for number, found in enumerate(together):
            scheduler.cache.clear()
            alone = ask(number)
            run_all(scheduler)
            assert np.abs(found.logits[0] - alone.logits[0]).max() < 0.1
        first = [each.logits[0] for each in together]
        assert min(np.abs(first[0] - first[number]).max() for number in (2, 4)) > 1.0


@pytest.mark.parametrize("options", [{"drafts": True}, {"draft_model": "llama"}])
def test_replies_of_an_alora_are_drafted_without_its_marks(options: dict[str, Any]) -> None:
    """A draft may be copied from, or made of, a path with marks: none of them is ever decoded."""
    model, invocation = model_path("llama"), (40, 41, 42, 43)
    file = read_lora(lora_path(model, 4, invocation), model, 1 << 20)
    called = AdapterSet.of([Adapter(file.fingerprint, invocation=file.invocation)])
    with scheduler_for("llama", slots=1, loras=(file,), **options) as scheduler:
        text = np.concatenate([prompt(scheduler, 40, 1), np.array(invocation, np.int32), prompt(scheduler, 3, 2)])
        replies = []
        for tokens in (text, text, np.concatenate([text, text])):
            recorder = Recorder()
            scheduler.submit(Run(Job(Prompt(tokens).adapted(called), max_tokens=24, ignore_end=True), recorder))
            run_all(scheduler)
            assert recorder.error is None
            replies.append(recorder.tokens)
        assert replies[0] == replies[1]
