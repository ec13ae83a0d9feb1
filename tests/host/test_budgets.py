"""Budgets for made-up machines and models: what can be spared, and not more than is needed."""

from dataclasses import replace

import pytest

from leftoff.config import MIB, NO_LIMIT, Settings
from leftoff.engine.devices import available_ram
from leftoff.engine.memory.base import MemoryKind
from leftoff.host.budgets import GIB, conversation_bytes, disk_budget, queue_budget, ram_budget
from leftoff.host.build import open_host
from tests.cache.chain import ChainMemory
from tests.factory import model_path

SMALL = ChainMemory(MemoryKind.HYBRID, num_cells=1 << 17, bytes_per_token=600, fixed_snapshot_bytes=1 << 20)
# An 8 B hybrid: 32.8 kB for a token, 52.7 MB for a state.
LARGE = ChainMemory(MemoryKind.HYBRID, num_cells=1 << 17, bytes_per_token=32_800, fixed_snapshot_bytes=52_700_000)
RECURRENT = ChainMemory(MemoryKind.RECURRENT, num_cells=1 << 17, fixed_snapshot_bytes=52_700_000)
DENSE = ChainMemory(MemoryKind.ATTENTION, num_cells=1 << 17, bytes_per_token=131_072)


def test_a_conversation_is_its_pages_and_a_few_snapshots() -> None:
    assert conversation_bytes(DENSE, 20_000) == 20_000 * 131_072
    assert conversation_bytes(RECURRENT, 20_000) == 2 * 52_700_000
    pages = 20_000 * 32_800
    assert conversation_bytes(LARGE, 20_000) == pages + 8 * 52_700_000
    assert conversation_bytes(LARGE, 5_000) == 2 * 5_000 * 32_800, "not more snapshots than pages"
    assert conversation_bytes(LARGE, 1_000) == 1_000 * 32_800 + 2 * 52_700_000, "but for two"


@pytest.mark.parametrize(
    ("memory", "available", "expected"),
    [
        (LARGE, 120 * GIB, 60 * GIB),  # half of what there is
        (LARGE, 16 * GIB, 8 * GIB),
        (LARGE, 2000 * GIB, 64 * conversation_bytes(LARGE, 32 << 10)),  # what 64 long conversations take
        (SMALL, 120 * GIB, 4 * GIB),  # more than a small model ever needs
        (SMALL, 3 * GIB, 3 * GIB // 2),
        (SMALL, 0, GIB // 4),  # little, and as much as any conversation needs
        (SMALL, -GIB, GIB // 4),
    ],
)
def test_ram_is_half_of_what_is_available_up_to_the_need(memory: ChainMemory, available: int, expected: int) -> None:
    assert ram_budget(memory, available) == expected


@pytest.mark.parametrize(
    ("memory", "free", "expected"),
    [
        (LARGE, 800 * GIB, 200 * GIB),  # a quarter of what is free
        (LARGE, 10 * GIB, 4 * GIB),  # what it always was, if it fits
        (LARGE, 6 * GIB, 3 * GIB),
        (LARGE, 0, 0),
        (SMALL, 800 * GIB, 256 * conversation_bytes(SMALL, 32 << 10)),
    ],
)
def test_the_disk_gives_a_quarter_of_what_is_free_up_to_the_need(memory: ChainMemory, free: int, expected: int) -> None:
    assert disk_budget(memory, free) == expected


def test_a_short_context_needs_less() -> None:
    short = ChainMemory(MemoryKind.HYBRID, num_cells=4096, bytes_per_token=32_800, fixed_snapshot_bytes=52_700_000)
    assert ram_budget(short, 2000 * GIB) == 64 * conversation_bytes(short, 4096) < ram_budget(LARGE, 2000 * GIB)


def test_the_queue_of_the_disk_is_a_part_of_ram() -> None:
    assert queue_budget(1 * GIB) == GIB // 2
    assert queue_budget(16 * GIB) == 2 * GIB
    assert queue_budget(NO_LIMIT * MIB) == 4 * GIB


def test_this_machine_gets_budgets_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("cache")
    settings = Settings(model=str(model_path("qwen35")), ctx=1024, threads=1, slots=1, cache_dir=str(folder))
    with open_host(settings) as host:
        ram, disk = (tier.budget.budget_bytes for tier in host.cache.tiers)
    assert GIB // 4 <= ram <= max(GIB // 4, available_ram())
    assert disk > 0
    with open_host(replace(settings, ram=64, disk=32)) as host:
        assert [tier.budget.budget_bytes for tier in host.cache.tiers] == [64 * MIB, 32 * MIB]
