"""What was read once is not read again: over whole conversations, for every kind of memory.

The budget is unlimited here, so nothing is excused: at most 2 % more is read than no server could have avoided.
"""

from dataclasses import dataclass

import numpy as np
import pytest

from leftoff.cache.cache import Cache
from leftoff.engine.memory.base import MemoryKind
from tests.cache.chain import RoomyChainMemory
from tests.cache.driver import Driver
from tests.cache.scripts import SCRIPTS, Served, Step, Writer, play

UNLIMITED = 1 << 50
ALLOWED = 1.02


@dataclass(frozen=True)
class Machine:
    num_slots: int
    num_spares: int

    def __str__(self) -> str:
        return f"{self.num_slots} slots, {self.num_spares} spare"


MACHINES = [Machine(1, 0), Machine(1, 1), Machine(4, 0), Machine(4, 1)]


def cases() -> list[tuple[str, MemoryKind, Machine]]:
    every = [(script, kind, machine) for script in SCRIPTS for kind in MemoryKind for machine in MACHINES]
    # an opaque memory has one sequence only
    return [case for case in every if case[1] is not MemoryKind.OPAQUE or case[2] == Machine(1, 0)]


class Server:
    """A cache over the hash-chain memory, which checks every state it is given."""

    def __init__(self, kind: MemoryKind, machine: Machine) -> None:
        memory = RoomyChainMemory(kind, machine.num_slots + machine.num_spares)
        cache = Cache(memory, num_slots=machine.num_slots, budget_bytes=UNLIMITED)
        self._driver = Driver(cache, memory, chunk=512)
        self._rng = np.random.default_rng(1)

    def serve(self, step: Step) -> Served:
        reply = self._rng.integers(8, 30_000, step.num_reply).astype(np.int32)
        turn = self._driver.request(step.prompt, reply)
        return Served(reply, turn.report.computed)


@pytest.mark.parametrize(("script", "kind", "machine"), cases(), ids=str)
def test_hardly_more_is_read_than_is_new(script: str, kind: MemoryKind, machine: Machine) -> None:
    account = play(SCRIPTS[script](Writer(seed=1)), Server(kind, machine).serve)
    assert account.computed <= ALLOWED * account.unavoidable, f"{account}: {account.ratio:.3f} times the unavoidable"


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_has_the_sizes_of_real_conversations(script: str) -> None:
    def serve_cold(step: Step) -> Served:
        return Served(np.full(step.num_reply, 9, np.int32), step.prompt.length)

    account = play(SCRIPTS[script](Writer(seed=1)), serve_cold)
    assert account.computed == account.prompt_tokens
    assert 1000 <= account.unavoidable <= 6500
    assert account.ratio > 2.5, "a script in which there is little to reuse proves little"
