"""Several models under whatever may go wrong, for some seconds; and their memory after many swaps."""

import gc
import os
from pathlib import Path

import pytest

from leftoff.machine import trim_heap
from tests.behaviour.models import PROMPTS, Town, ask, replies_of_their_own
from tests.server.test_hosts import served

NUM_SWAPS = 30
NUM_LEVELS = 5  # at each end: where the system keeps freed memory differs from swap to swap, a leak only grows
GROWTH = 1.05


def test_models_that_come_and_go_lose_nothing(tmp_path: Path) -> None:
    town = Town(tmp_path, most=1, replies=replies_of_their_own(), seed=33)
    town.play(seconds=12, num_requests=90)
    assert town.problems == []
    assert town.seen["answered"] >= 8
    assert town.seen["swaps"] >= 4


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the memory of a process by Linux's /proc")
def test_memory_after_many_swaps_is_as_after_the_second() -> None:
    def resident() -> int:
        gc.collect()
        trim_heap()
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    with served("llama", "qwen35", most=1) as (url, models):
        levels = []
        for _ in range(NUM_SWAPS // 2):
            for name in ("llama", "qwen35"):
                ask(url, name, PROMPTS[0])
            levels.append(resident())
        assert models[0].seat.swaps.num + models[1].seat.swaps.num >= NUM_SWAPS
        assert min(levels[-NUM_LEVELS:]) < GROWTH * max(levels[:NUM_LEVELS]), levels
