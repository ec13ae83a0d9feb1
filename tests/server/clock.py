"""A clock for the limits of connections that goes on when a test says so."""

from dataclasses import dataclass

import pytest

from leftoff.server import server
from tests.patience import until


@dataclass
class Clock:
    """Stands still, for the limits of connections, until a test puts it forward."""

    now: float = 0.0
    num_ticks: int = 0

    def __call__(self) -> float:
        return self.now

    def forward(self, seconds: float) -> None:
        """The server has read what was sent before, and has looked at its connections after."""
        self.await_ticks()
        self.now += seconds
        self.await_ticks()

    def await_ticks(self) -> None:
        before = self.num_ticks
        assert until(lambda: self.num_ticks >= before + 2)


def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    tick = server.Server.on_tick

    async def counted(self: server.Server, counter: int) -> bool:
        should_exit = await tick(self, counter)
        clock.num_ticks += 1
        return should_exit

    monkeypatch.setattr("leftoff.server.http.connection.monotonic", clock)
    monkeypatch.setattr(server, "IDLE_SECONDS", 3600)  # uvicorn's own timer goes by another clock
    monkeypatch.setattr(server, "_TICKS_PER_SECOND", 1)
    monkeypatch.setattr(server.Server, "on_tick", counted)
    return clock
