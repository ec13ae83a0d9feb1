"""A reply that one machine has written is remembered on the others."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from leftoff.store.index import INDEX_PROBLEMS
from leftoff.store.replies import open_index_replies
from tests.disk.stores import FINGERPRINT
from tests.patience import PATIENCE_S, until
from tests.store.conftest import Opened
from tests.store.parts import Redis


def test_a_reply_is_found_on_another_machine(opened: Opened) -> None:
    one, other = (open_index_replies(opened().medium.link, FINGERPRINT) for _ in range(2))
    one.put(b"k" * 32, "", b"a reply")
    assert one.get([b"k" * 32]) == {b"k" * 32: b"a reply"}  # also before it is written
    assert until(lambda: other.get([b"k" * 32, b"x" * 32]) == {b"k" * 32: b"a reply"})
    assert open_index_replies(opened("cd" * 32).medium.link, "cd" * 32).get([b"k" * 32]) == {}


def test_a_damaged_reply_is_not_given(opened: Opened) -> None:
    link = opened().medium.link
    replies = open_index_replies(link, FINGERPRINT)

    async def damage() -> None:
        await link.index.redis.set(link.index.keys.reply(b"d" * 32), b"s" * 16 + b"a reply")

    link.call(damage()).result()
    assert replies.get([b"d" * 32]) == {}


def test_the_replies_of_a_namespace_are_removed(opened: Opened) -> None:
    replies = open_index_replies(opened().medium.link, FINGERPRINT)
    replies.put(b"m" * 32, "", b"mine")
    assert until(lambda: open_index_replies(opened().medium.link, FINGERPRINT).get([b"m" * 32]))
    (removed,) = replies.remove(lambda name: name == "")
    removed.result(PATIENCE_S)
    assert replies.get([b"m" * 32]) == {}


def test_a_reply_that_is_put_while_its_namespace_is_removed_is_removed_too(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    links = [opened().medium.link for _ in range(3)]
    one, other, third = (open_index_replies(link, FINGERPRINT) for link in links)
    redis, keys = links[0].index.redis, iter((b"u" * 32, b"v" * 32))
    sscan_iter = redis.sscan_iter

    async def listed_and_put(*args: Any, **options: Any) -> AsyncIterator[bytes]:  # noqa: ANN401
        async for each in sscan_iter(*args, **options):
            yield each
        if (key := next(keys, None)) is not None:
            other.put(key, "mine/", b"put meanwhile")
            assert until(lambda: third.get([key]))

    monkeypatch.setattr(redis, "sscan_iter", listed_and_put)
    other.put(b"t" * 32, "mine/", b"put before")
    assert until(lambda: third.get([b"t" * 32]))
    (removed,) = one.remove(lambda name: name == "mine/")
    removed.result(PATIENCE_S)
    assert next(keys, None) is None
    assert third.get([b"t" * 32, b"u" * 32, b"v" * 32]) == {}


def test_without_the_index_nothing_is_found_and_nobody_waits(opened: Opened, index: Redis) -> None:
    replies = open_index_replies(opened().medium.link, FINGERPRINT)
    index.kill()
    try:
        replies.put(b"n" * 32, "", b"a reply")
        assert replies.get([b"o" * 32]) == {}
    finally:
        index.start()


def test_once_the_link_is_closed_nothing_is_found(opened: Opened) -> None:
    link = opened().medium.link
    replies = open_index_replies(link, FINGERPRINT)
    link.close()
    assert replies.get([b"w" * 32]) == {}


def test_an_index_that_has_forgotten_is_given_the_replies_again(opened: Opened, index: Redis) -> None:
    link = opened().medium.link
    replies = open_index_replies(link, FINGERPRINT)
    replies.put(b"p" * 32, "", b"before")
    assert until(lambda: open_index_replies(opened().medium.link, FINGERPRINT).get([b"p" * 32]))
    index.kill()
    replies.put(b"q" * 32, "", b"meanwhile")
    assert until(lambda: link.index_breaker.is_failing)
    index.start()
    other = open_index_replies(opened().medium.link, FINGERPRINT)
    assert until(lambda: len(other.get([b"p" * 32, b"q" * 32])) == 2)


def test_who_removes_never_waits_for_an_index_that_hangs(opened: Opened, index: Redis) -> None:
    replies = open_index_replies(opened().medium.link, FINGERPRINT)
    index.freeze()
    try:
        replies.put(b"r" * 32, "", b"being written")
        assert until(lambda: not replies._unwritten)
        (removed,) = replies.remove(lambda name: name == "")
        assert not removed.done()
        assert replies.get([b"r" * 32]) == {}
    finally:
        index.thaw()
    assert until(removed.done)


def test_who_removes_is_told_that_the_index_is_gone(opened: Opened, index: Redis) -> None:
    replies = open_index_replies(opened().medium.link, FINGERPRINT)
    index.kill()
    try:
        (removed,) = replies.remove(lambda name: name == "")
        with pytest.raises(INDEX_PROBLEMS):
            removed.result(PATIENCE_S)
    finally:
        index.start()
