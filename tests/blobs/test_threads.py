"""The event loop of a thread: whoever calls it gets an answer, also while it ends."""

import asyncio
from concurrent.futures import CancelledError, Future

import pytest

from leftoff.blobs.threads import LoopThread


def test_a_call_while_it_ends_is_cancelled() -> None:
    thread, answers = LoopThread("test"), list[Future[None]]()

    async def endless() -> None:
        await asyncio.Event().wait()

    async def ending() -> None:
        answers.append(await asyncio.to_thread(thread.call, endless()))

    thread.close(ending)
    with pytest.raises(CancelledError):
        answers[0].result(1.0)


def test_it_ends_also_if_ending_fails() -> None:
    thread = LoopThread("test")

    async def ending() -> None:
        raise ConnectionError

    thread.close(ending)
    assert thread.loop.is_closed()
