"""Replies are found by the conversation before them and by what they say, however a client writes it."""

import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from leftoff.chat.formats.parts import Call, ParsedReply
from leftoff.chat.replies import RememberedReplies, Transcript, Written, said_of, shown
from tests.chat.conversations import assistant, call, user


def written(text: str, *tokens: int) -> Written:
    return Written(tokens or (1, 2), text, ParsedReply(text))


def key(*texts: str, namespace: str = "") -> bytes:
    return Transcript.of([user(text) for text in texts], namespace).keys[-1]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ('{"a": 1.0, "b": [2]}', '{"b":[2],"a":1}'),
        ('{"a": 1e3}', '{"a":1000}'),
        ('{"a": "\\u00e9"}', '{"a":"é"}'),
        ('{"a": 12345678901234567890}', '{"a":12345678901234567000}'),
        ('{"a": 1e999}', '{"a":null}'),
        ('{"a": -0.0}', '{"a":0}'),
    ],
)
def test_arguments_are_the_same_after_a_client_wrote_them_anew(ours: str, theirs: str) -> None:
    said = shown(ParsedReply("", "", (Call("f", ours),)))
    assert shown(said_of(assistant(None, tool_calls=[call(1, "f", theirs)]))) == said
    assert shown(said_of(assistant("", tool_calls=[call(1, "f", json.loads(theirs))]))) == said


def test_other_arguments_are_others() -> None:
    one, other = (shown(ParsedReply("", "", (Call("f", text),))) for text in ('{"a": 1}', '{"a": "1"}'))
    assert one != other


def test_content_in_parts_counts_as_its_text() -> None:
    parts: Any = [{"type": "text", "text": "two "}, {"type": "text", "text": "parts"}]
    said = ([user("two parts")], [{"role": "user", "content": parts}])
    assert Transcript.of(said[0], "").keys == Transcript.of(said[1], "").keys


def test_the_newest_reply_comes_first_and_one_that_says_the_same_is_replaced() -> None:
    remembered = RememberedReplies()
    for text, token in (("yes", 1), ("no", 2), (" yes ", 3)):
        remembered.add(key("hi"), written(text, token))
    ((newest, older),) = remembered.find([key("hi")])
    assert (newest.tokens, older.tokens) == ((3,), (2,))
    for number in range(9):
        remembered.add(key("hi"), written(str(number)))
    assert len(remembered.find([key("hi")])[0]) == 4


def test_they_are_bounded_in_bytes() -> None:
    remembered = RememberedReplies(limit_bytes=10_000)
    for number in range(100):
        remembered.add(key(str(number)), written("word " * 50))
    found = remembered.find([key(str(number)) for number in range(100)])
    assert 0 < sum(map(bool, found)) <= 10
    assert found[-1]


class Values:
    """A store in a dictionary."""

    def __init__(self) -> None:
        self.rows: dict[bytes, tuple[str, bytes]] = {}
        self.num_gets = 0

    def get(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]:
        self.num_gets += 1
        return {key: self.rows[key][1] for key in keys if key in self.rows}

    def put(self, key: bytes, namespace: str, value: bytes) -> None:
        self.rows[key] = namespace, value

    def remove(self, is_meant: Callable[[str], bool]) -> list[Future[None]]:
        self.rows = {key: row for key, row in self.rows.items() if not is_meant(row[0])}
        return []


def test_another_process_finds_them_in_the_store() -> None:
    store = Values()
    reply = Written((5, 6), "<t>{}", ParsedReply("said", "thought", (Call("f", "{}"),)), ("Status: clean",))
    RememberedReplies(store).add(key("hi"), reply)
    later = RememberedReplies(store)
    assert later.find([key("hi"), key("else")]) == [(reply,), ()]
    later.add(key("hi"), written("more"))
    assert len(RememberedReplies(store).find([key("hi")])[0]) == 2
    assert later.find([key("hi")])[0][1] == reply
    assert store.num_gets == 2, "what is in RAM is not looked up again"


def test_what_another_version_wrote_is_not_read() -> None:
    store = Values()
    store.rows[key("hi")] = "", b"\x93\x01\x02"
    assert RememberedReplies(store).find([key("hi")]) == [()]


def test_those_of_a_namespace_are_removed_everywhere() -> None:
    store = Values()
    remembered = RememberedReplies(store)
    keys = [key("hi", namespace=name) for name in ("mine", "yours")]
    for one, name in zip(keys, ("mine", "yours"), strict=True):
        remembered.add(one, written("yes"), name)
    remembered.remove(lambda name: name == "mine")
    assert [bool(found) for found in remembered.find(keys)] == [False, True]
