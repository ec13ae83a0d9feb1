"""Tool loops in every dialect compute what is new and nothing else, however the model spells its replies in tokens."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from leftoff.chat.conversation import Conversation
from leftoff.host.host import ModelHost
from tests.behaviour.tool_loop import ANY_TOKEN, DIALECTS, TOOL, OpenAi, play, server

TURNS = 3
MIN_TURNS = 2  # turns in which a reply is read again


@pytest.fixture(scope="module")
def remembering() -> Iterator[tuple[ModelHost, httpx.Client]]:
    with server() as running:
        yield running


@pytest.mark.parametrize("name", DIALECTS)
def test_a_loop_computes_only_what_is_new(remembering: tuple[ModelHost, httpx.Client], name: str) -> None:
    tally = play(remembering[1], DIALECTS[name], TURNS, forced=False)
    assert tally.computed <= tally.unavoidable, tally


@pytest.mark.parametrize("name", [name for name, dialect in DIALECTS.items() if dialect.can_force])
def test_a_loop_of_forced_calls_computes_only_what_is_new(
    remembering: tuple[ModelHost, httpx.Client], name: str
) -> None:
    tally = play(remembering[1], DIALECTS[name], TURNS, forced=True)
    assert tally.computed <= tally.unavoidable, tally
    assert tally.num_calls > TURNS // 2


def test_without_memory_more_is_computed() -> None:
    """Otherwise the loops above prove nothing: the model does not spell as the tokenizer does."""
    with server(remember_replies=False) as (_, http):
        tally = play(http, OpenAi(), MIN_TURNS, forced=True, sampling=ANY_TOKEN)
    assert tally.computed > tally.unavoidable


def test_the_tokens_of_replies_are_known_after_a_restart(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": TOOL}]
    with server(disk=64, cache_dir=str(tmp_path)) as (host, http):
        history = play(http, OpenAi(), MIN_TURNS, forced=True, sampling=ANY_TOKEN).history
        conversation = Conversation(history, tools, {"enable_thinking": False})
        before = host.chats.prompt(conversation).prompt.tokens
        spelled = host.prompts.from_conversation(conversation).tokens
    assert not np.array_equal(before, spelled)
    with server(disk=64, cache_dir=str(tmp_path)) as (host, _):
        assert np.array_equal(before, host.chats.prompt(conversation).prompt.tokens)
