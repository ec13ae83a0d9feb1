"""What is told of clients: sums that nothing takes away, and titles that can be forgotten."""

from typing import Any

import pytest

from leftoff.host import callers as module
from leftoff.host.callers import Caller, Callers, Sums, show_time


def asked(callers: Callers, client: str, talk: str, at: float, namespace: str = "", model: str = "m") -> None:
    callers.add(
        Caller(client, "/v1/messages", talk, f"title {talk}"),
        namespace,
        model,
        Sums(at, 1, 100, 90, 5.0, {"RAM": 90, "new": 10}),
    )


def shown(callers: Callers, tenant: str = "", limit: int = 10) -> dict[Any, list[Any]]:
    return {each["client"]: [talk["title"] for talk in each["latest"]] for each in callers.shown(tenant, limit)}


def test_turns_are_added_and_the_latest_come_first() -> None:
    callers = Callers()
    for at, (client, talk) in enumerate([("Codex", "a"), ("Claude Code", "b"), ("Codex", "c"), ("Codex", "a")]):
        asked(callers, client, talk, at)
    assert shown(callers) == {"Codex": ["title a", "title c"], "Claude Code": ["title b"]}
    assert shown(callers, limit=1)["Codex"] == ["title a"]
    codex = callers.shown("", 0)[0]
    sums = {
        "at": 3,
        "requests": 3,
        "prompt_tokens": 300,
        "reused": 270,
        "saved_ms": 15.0,
        "origins": {"RAM": 270, "new": 30},
    }
    assert codex == {"client": "Codex", "conversations": 2, **sums, "latest": []}


def test_tenants_see_their_own() -> None:
    callers = Callers()
    asked(callers, "Codex", "a", 1, "one/")
    asked(callers, "Codex", "b", 2, "two/salt")
    assert shown(callers, "one") == {"Codex": ["title a"]}
    assert shown(callers, "two") == {"Codex": ["title b"]}
    assert shown(callers) == {}


def test_titles_are_forgotten_and_sums_stay() -> None:
    callers = Callers()
    asked(callers, "Codex", "a", 1, "one/", "first")
    asked(callers, "Codex", "b", 2, "one/salt", "first")
    asked(callers, "Codex", "c", 3, "one/", "second")
    callers.forget(lambda name: name == "one/", "first")
    assert shown(callers, "one") == {"Codex": ["title c", "title b"]}
    callers.forget(lambda name: name == "one/salt")
    assert shown(callers, "one") == {"Codex": ["title c"]}
    assert callers.shown("one", 1)[0]["requests"] == 3


def test_no_number_of_clients_or_conversations_fills_the_memory() -> None:
    callers = Callers()
    for number in range(2 * module._MAX_CONVERSATIONS):
        asked(callers, f"client {number}", f"{number}", number)
    assert len(callers.shown("", 1)) == module._MAX_CLIENTS
    for number in range(2 * module._MAX_CONVERSATIONS):
        asked(callers, "one", f"{number}", number)
    (one, *_) = callers.shown("", 1 << 20)
    assert one["conversations"] == 2 * module._MAX_CONVERSATIONS
    assert len(one["latest"]) == module._MAX_CONVERSATIONS


@pytest.mark.parametrize(
    ("tokens", "seconds", "words"),
    [
        (0, 0.0, "0 tokens, 0.0 s"),
        (26_118, 41.4, "26,118 tokens, 41 s"),
        (1_234_567, 2460.0, "1.2 M tokens, 41 minutes"),
        (999_999, 119.0, "999,999 tokens, 119 s"),
    ],
)
def test_what_was_spared_is_told_in_words(tokens: int, seconds: float, words: str) -> None:
    assert str(Sums(reused=tokens, saved_ms=1000 * seconds)) == words


def test_times_grow_into_larger_units() -> None:
    told = [show_time(each) for each in (130, 7500, 90_000, 200_000)]
    assert told == ["2.2 minutes", "2.1 hours", "25 hours", "2.3 days"]
