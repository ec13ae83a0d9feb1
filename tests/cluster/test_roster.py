"""Servers and routers that Ray runs find each other, and the work of all routers counts."""

import asyncio

from leftoff.cluster.roster import EXPIRY_S, Roster, Work


def test_routers_find_servers_and_servers_their_work() -> None:
    async def meet() -> None:
        roster = Roster()
        await roster.enter("http://a")
        await roster.enter("http://b")
        assert await roster.exchange("one", {"http://a": Work(3, 1.5)}) == (["http://a", "http://b"], [])
        await roster.exchange("two", {"http://a": Work(2, 2.0), "http://c": Work(9, 9.0)})
        assert await roster.work("http://a") == Work(5, 2.0), "requests of both, and the prompts that both know of"
        assert await roster.work("http://b") == Work()

    asyncio.run(meet())


def test_whoever_tells_nothing_is_forgotten() -> None:
    now = 0.0

    async def meet() -> None:
        nonlocal now
        roster = Roster(lambda: now)
        await roster.enter("http://a")
        await roster.exchange("one", {"http://b": Work(3)})
        now += EXPIRY_S / 2
        await roster.enter("http://b")
        now += EXPIRY_S / 2
        assert await roster.exchange("two", {"http://b": Work(1)}) == (["http://b"], [])
        assert await roster.work("http://b") == Work(1)

    asyncio.run(meet())


def test_a_server_that_is_to_stop_gets_nothing_new_and_learns_what_it_has_still_to_do() -> None:
    async def meet() -> None:
        roster = Roster()
        await roster.enter("http://a")
        await roster.exchange("one", {"http://a": Work(2)})
        assert await roster.leave("http://a") == Work(2)
        assert await roster.exchange("one", {"http://a": Work()}) == (["http://a"], ["http://a"])
        assert await roster.leave("http://a") == Work()

    asyncio.run(meet())
