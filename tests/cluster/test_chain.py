"""Requests of one conversation share the beginning of their chains, in every dialect; others do not."""

import json
from typing import Any

import pytest

from leftoff.cluster.chain import Chain, read_chain

SYSTEM = {"role": "system", "content": "You are brief."}
TURNS = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}, {"role": "user", "content": "?"}]


def chain(headers: dict[str, str] | None = None, **fields: Any) -> Chain:  # noqa: ANN401
    return read_chain(json.dumps(fields).encode(), headers or {})


def shared(one: Chain, other: Chain) -> int:
    return sum(a == b for a, b in zip(one.keys, other.keys, strict=False))


def test_a_conversation_that_goes_on_shares_all_of_its_keys() -> None:
    first, second = chain(messages=[SYSTEM, TURNS[0]]), chain(messages=[SYSTEM, *TURNS], temperature=0.5, stream=True)
    assert shared(first, second) == len(first.keys) == 3
    assert second.header == 1
    assert list(second.ends) == sorted({*second.ends})


def test_a_change_changes_all_keys_from_there() -> None:
    one = chain(messages=[SYSTEM, *TURNS])
    assert shared(one, chain(messages=[SYSTEM, {"role": "user", "content": "Ho"}, *TURNS[1:]])) == 2
    assert shared(one, chain(messages=[SYSTEM, *TURNS], tools=[{"name": "clock"}])) == 0


@pytest.mark.parametrize("name", ["authorization", "x-api-key", "x-cache-salt"])
def test_tenants_share_no_key(name: str) -> None:
    assert shared(chain({name: "a"}, messages=TURNS), chain({name: "b"}, messages=TURNS)) == 0


def test_marks_that_clients_move_are_no_part_of_a_message() -> None:
    def text(said: str, **mark: object) -> dict[str, object]:
        return {"role": "user", "content": [{"type": "text", "text": said, **mark}]}

    mark = {"cache_control": {"type": "ephemeral"}}
    one, other = (
        chain(system="S", messages=[text("a", **mark)]),
        chain(system="S", messages=[text("a"), text("b", **mark)]),
    )
    assert shared(one, other) == 2


def test_a_long_text_is_cut_into_pieces() -> None:
    text = "word " * 1000
    one, other = chain(prompt=text), chain(prompt=text + "more")
    assert one.is_text
    assert (len(one.keys), shared(one, other)) == (6, 5)


def test_ids_that_one_replica_knows_are_found() -> None:
    assert chain(input="Hi", previous_response_id="resp_1").owner == "resp_1"
    assert chain(input="Hi", conversation={"id": "conv_2"}).owner == "conv_2"
    assert chain(input="Hi").owner is None


@pytest.mark.parametrize("body", [b"", b"no JSON", b"[1]", b"\xff", b"[" * 100_000])
def test_what_is_no_request_has_no_chain(body: bytes) -> None:
    assert read_chain(body, {}) == Chain((), ())


@pytest.mark.parametrize("depth", [700, 1500, 5000])
def test_however_deep_a_request_is_nested_it_is_passed_on(depth: int) -> None:
    """How deep it may be decoded, and gone through after that, depends on the version of Python."""
    body = b'{"model": "m", "messages": [{"cache_control": 1, "content": ' + b"[" * depth + b"]" * depth + b"}]}"
    assert read_chain(body, {}, model="m").model == "m"


def test_a_path_names_what_one_replica_keeps() -> None:
    assert read_chain(b"", {}, "/v1/responses/resp_1a/cancel") == Chain((), (), owner="resp_1a")
    assert read_chain(b'{"items": []}', {}, "/v1/conversations/conv_2/items") == Chain((), (), owner="conv_2")
    assert read_chain(b"", {}, "/v1/responses") == Chain((), ())
