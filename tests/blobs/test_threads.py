"""The event loop of a thread: whoever calls it gets an answer, also while it ends."""

import asyncio
from concurrent.futures import CancelledError, Future

import pytest

from leftoff.blobs.threads import LoopThread
from tests.patience import PATIENCE_S


def test_a_call_while_it_ends_is_cancelled() -> None:
    thread, answers = LoopThread("test"), list[Future[None]]()

    async def ending() -> None:
        call = asyncio.to_thread(thread.call, asyncio.sleep(PATIENCE_S))
        answers.append(await call)

    thread.close(ending)
    with pytest.raises(CancelledError):
        answers[0].result(1.0)


def test_it_ends_also_if_ending_fails() -> None:
    thread = LoopThread("test")

    async def ending() -> None:
        raise ConnectionError

    thread.close(ending)
    assert thread.loop.is_closed()
