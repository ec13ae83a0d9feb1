"""The way from a process to a part of the fleet that is not ours: late, lost or doubled answers, cuts and crashes."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from lab.box.world import Process, World

Result = TypeVar("Result")
_FAST_S, _SLOW_S = 0.003, 0.9


class Part(Process):
    """A Redis or a bucket, or any other that answers calls. What breaks is mended by setting it back."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.is_down = False  # it refuses connections
        self.is_frozen = False  # it answers nothing
        self.cut: set[str] = set()  # processes that cannot reach it
        self.slow_s = 0.0
        self.lost = 0.0  # the share of calls whose request or answer is lost, or that are done twice
        self.num_calls = 0

    @property
    def is_well(self) -> bool:
        return not (self.is_down or self.is_frozen or self.cut or self.slow_s or self.lost)

    def mend(self) -> None:
        self.is_down = self.is_frozen = False
        self.cut.clear()
        self.slow_s = self.lost = 0.0

    def delay_s(self) -> float:
        chance = self.world.random
        return self.slow_s + (chance.uniform(0, _SLOW_S) if chance.random() < self.lost else chance.uniform(0, _FAST_S))

    async def call(self, client: Process, what: str, work: Callable[[], Result], timeout_s: float) -> Result:
        """Runs `work` there. `ConnectionRefusedError` or `TimeoutError` if the answer does not come."""
        world, chance = self.world, self.world.random
        self.num_calls += 1
        await asyncio.sleep(self.delay_s())
        if self.is_down:
            raise ConnectionRefusedError(f"{self.name} is down")
        answer: asyncio.Future[Result] = client.loop.create_future()
        fate = chance.random() / self.lost if self.lost else 1.0
        if client.name not in self.cut and fate > 1 / 3:
            for _ in range(2 if fate < 1 / 2 else 1):
                world.at(world.now, self, partial(self._serve, client, what, work, answer, fate < 2 / 3))
        async with asyncio.timeout(timeout_s):
            return await answer

    def _serve(
        self, client: Process, what: str, work: Callable[[], Result], answer: "asyncio.Future[Result]", is_lost: bool
    ) -> None:
        world = self.world
        if self.is_frozen:  # it answers when it thaws
            world.at(world.now + 0.5, self, partial(self._serve, client, what, work, answer, is_lost))
            return
        if self.is_down:
            return
        world.note(f"{client.name} {self.name} {what}")
        try:
            result = work()
        except Exception as error:
            end = partial(_fail, answer, error)
        else:
            end = partial(_tell, answer, result)
        if not is_lost and client.name not in self.cut:
            world.at(world.now + self.delay_s(), client, end)


def _tell(answer: "asyncio.Future[Result]", result: Result) -> None:
    if not answer.done():
        answer.set_result(result)


def _fail(answer: "asyncio.Future[Result]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
