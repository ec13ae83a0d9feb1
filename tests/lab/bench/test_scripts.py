"""The scripts are what they say: checked by their prompts alone, against a server that repeats a word."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from lab.bench.ask import Ask, Reply
from lab.bench.texts import Texts
from lab.bench.workload import COLD, USUAL, WORKLOADS

Answerer = Callable[[Ask], Reply]


def says_yes(_: Ask) -> Reply:
    return Reply(" yes yes", reasoning="hm")


def asks(name: str, answer: Answerer = says_yes, seed: int = 1) -> list[list[Ask]]:
    return list(batches(name, answer, seed))


def batches(name: str, answer: Answerer, seed: int) -> Iterator[list[Ask]]:
    script = WORKLOADS[name].script(Texts(seed, scale=0.1))
    asked = next(script, None)
    while asked:
        yield asked
        try:
            asked = script.send([answer(ask) for ask in asked])
        except StopIteration:
            asked = None


def said(ask: Ask) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in ask.messages]


@pytest.mark.parametrize("name", WORKLOADS)
def test_it_is_the_same_for_the_same_seed_and_another_for_another(name: str) -> None:
    assert asks(name) == asks(name)
    assert asks(name) != asks(name, seed=2)


@pytest.mark.parametrize("name", [name for name in WORKLOADS if name not in ("volatile", "shortened")])
def test_replies_come_back_unchanged_in_later_prompts(name: str) -> None:
    later = [content for (batch) in asks(name) for ask in batch for role, content in said(ask) if role == "assistant"]
    assert {*later} <= {" yes yes", ""}


def test_every_workload_is_played_somewhere() -> None:
    assert {*USUAL, *COLD} == {*WORKLOADS}


def test_the_agent_loop_only_grows() -> None:
    prompts = [said(ask) for (ask,) in asks("agent-loop")]
    assert len(prompts) == 12
    assert all(later[: len(earlier)] == earlier for earlier, later in pairwise(prompts))


def test_reasoning_is_dropped_and_one_reply_is_halved() -> None:
    prompts = [said(ask) for (ask,) in asks("shortened")]
    assert [content for role, content in prompts[-1] if role == "assistant"] == [" yes yes"] * 4 + [" yes"] + [
        " yes yes"
    ] * 2


def test_an_edit_leaves_the_first_branch_as_it_was() -> None:
    prompts = [said(ask) for (ask,) in asks("edit")]
    first, edited, returned = prompts[5], prompts[6], prompts[9]
    assert edited[:5] == first[:5]
    assert edited[5] != first[5]
    assert returned[: len(first)] == first


def test_the_header_changes_but_what_is_counted_does_not() -> None:
    asked = [ask for (ask,) in asks("volatile")]
    assert len({said(ask)[0] for ask in asked}) == len(asked)
    assert len({str((ask.counted or [])[0]) for ask in asked}) == 1


def test_sub_agents_ask_at_the_same_time_and_others_do_not() -> None:
    assert {len(batch) for batch in asks("subagents")} == {6}
    assert {len(batch) for name in WORKLOADS if name != "subagents" for batch in asks(name)} == {1}


def test_the_server_is_restarted_once_in_the_middle() -> None:
    assert [ask.after_restart for (ask,) in asks("restart")] == [False] * 4 + [True] + [False] * 3


def test_a_refused_prompt_is_asked_again_without_its_oldest_turn_and_counted_whole() -> None:
    def refuses_long_ones(ask: Ask) -> Reply:
        return Reply(is_refused=len(ask.messages) > 8) if len(ask.messages) > 8 else Reply("yes")

    asked = [ask for (ask,) in asks("window", refuses_long_ones)]
    first = next(number for number, ask in enumerate(asked) if len(ask.messages) > 8)
    refused, again = asked[first], asked[first + 1]
    assert said(again) == [said(refused)[0], *said(refused)[3:]]
    assert again.counted == refused.counted
    assert len(asked[-1].messages) <= 10
    assert len(asked[-1].counted or ()) == 48


def test_a_model_that_only_talks_gets_a_call_put_into_its_mouth() -> None:
    prompts = [ask.messages for (ask,) in asks("tools")]
    assert all(message["tool_calls"] for message in prompts[5] if message["role"] == "assistant")
    assert [message["role"] for message in prompts[-1]].count("tool") == 18
    assert prompts[7][-1]["role"] == "user"
