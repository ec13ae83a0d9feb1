"""Calls from another thread to an event loop, also to one that is no more."""

import asyncio

from leftoff.server.http.loop_bridge import LoopBridge, loop_bridge


def test_what_is_put_after_the_loop_was_closed_is_done_at_once_and_in_order() -> None:
    """A reply that the server's stop cancels still leaves its line."""
    calls: list[int] = []

    async def bridge() -> LoopBridge:
        made = loop_bridge()
        made.put(lambda: calls.append(1), is_urgent=False)
        return made

    left = asyncio.run(bridge())
    for number in (2, 3):
        left.put(lambda number=number: calls.append(number), is_urgent=True)  # type: ignore[misc]
    assert calls == [1, 2, 3]
