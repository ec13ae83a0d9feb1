"""Pages are made for gaps only, cut at whole pages; and when the budget is small, an earlier resume point is kept."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pytest

from lab.simulate.policies import LeastRecentlyUsed
from leftoff.cache.blob_store import LOWEST, Item, Rank, Record
from leftoff.cache.budget import ByteBudget
from leftoff.cache.costs import Costs
from leftoff.cache.save import Saver
from leftoff.cache.sequences import EngineSequence
from leftoff.cache.tier import Tier
from leftoff.engine.memory.base import MemoryKind, Page, Snapshot, Span
from leftoff.types import Tokens
from tests.cache.chain import BYTES_PER_TOKEN, SNAPSHOT_BYTES, ChainMemory
from tests.cache.memory_blob_store import MemoryBlobStore
from tests.cache.trees import UNLIMITED, Clock, run

PAGE_TOKENS = 32
PAGED = [MemoryKind.ATTENTION, MemoryKind.HYBRID, MemoryKind.WINDOW]
WITH_SNAPSHOTS = [kind for kind in MemoryKind if kind.has_snapshots]


class WatchedMemory(ChainMemory):
    """Tells which pages were saved."""

    def __init__(self, kind: MemoryKind) -> None:
        super().__init__(kind)
        self.saved: list[tuple[int, int]] = []

    def save_pages(self, seq: int, spans: Sequence[Span]) -> list[Page]:
        self.saved += spans
        return super().save_pages(seq, spans)


@dataclass
class Bench:
    kind: MemoryKind
    budget_bytes: int = UNLIMITED

    def __post_init__(self) -> None:
        self.memory = WatchedMemory(self.kind)
        self.clock = Clock()
        self.tier = Tier(ByteBudget("RAM", self.budget_bytes, LeastRecentlyUsed(), self.clock), self.clock)
        self.budget = self.tier.budget
        self.saver = Saver(self.memory, Costs(), self.tier, PAGE_TOKENS)
        self.tree = self.tier.tree("")

    def read(self, tokens: Tokens, seq: int = 0, snapshots: tuple[int, ...] = ()) -> EngineSequence:
        """A sequence in the engine that has read `tokens`, with snapshots kept on the way."""
        self.memory.drop(seq)
        sequence = EngineSequence(seq, self.budget)
        sequence.start(tokens[:0], "")
        ends = (*snapshots, int(tokens.size))
        for start, end in zip((0, *snapshots), ends, strict=True):
            self.memory.decode(seq, tokens[start:end])
            sequence.append(tokens[start:end])
            if end in snapshots:
                self.saver.save_point(self.saver.path(sequence), end)
        return sequence

    def keep(self, sequence: EngineSequence) -> None:
        self.saver.save_all(self.saver.path(sequence))
        self.tier.check_integrity()

    def covered(self, tokens: Tokens) -> int:
        """How far the path is covered without a gap."""
        end = 0
        for stretch in self.tree.match(tokens).stretches():
            if stretch.start > end:
                break
            end = stretch.end
        return end

    def resume_points(self, tokens: Tokens) -> list[int]:
        return [point.position for point in self.tree.match(tokens).points()]


@pytest.mark.parametrize("kind", PAGED)
def test_pages_end_at_multiples_of_the_page_size(kind: MemoryKind) -> None:
    bench = Bench(kind)
    bench.keep(bench.read(run((1, 70))))
    assert bench.memory.saved == [(0, 32), (32, 64), (64, 70)]


@pytest.mark.parametrize("kind", PAGED)
def test_only_what_no_page_covers_is_saved(kind: MemoryKind) -> None:
    bench = Bench(kind)
    bench.keep(bench.read(run((1, 70))))
    bench.memory.saved.clear()
    bench.keep(bench.read(run((1, 40), (2, 60))))
    assert bench.memory.saved == [(40, 64), (64, 96), (96, 100)]
    bench.memory.saved.clear()
    bench.keep(bench.read(run((1, 70))))
    assert bench.memory.saved == []


@pytest.mark.parametrize("kind", [MemoryKind.RECURRENT, MemoryKind.OPAQUE])
def test_memory_in_one_lump_has_no_pages(kind: MemoryKind) -> None:
    bench = Bench(kind)
    bench.keep(bench.read(run((1, 70))))
    assert bench.memory.saved == []
    assert bench.resume_points(run((1, 70))) == [70]


@pytest.mark.parametrize("kind", WITH_SNAPSHOTS)
def test_a_small_budget_keeps_an_earlier_resume_point_whole(kind: MemoryKind) -> None:
    tokens = run((1, 100))
    until_40 = ChainMemory(kind).page_bytes(40) + ChainMemory(kind).snapshot_bytes(40)
    bench = Bench(kind, until_40)
    bench.keep(bench.read(tokens, snapshots=(40,)))
    if kind is MemoryKind.RECURRENT:  # whose states all have one size: the latest is the best
        assert bench.resume_points(tokens) == [100]
    else:
        assert bench.resume_points(tokens) == [40]
        assert bench.budget.used_bytes == until_40


def test_attention_alone_is_kept_in_part() -> None:
    tokens = run((1, 100))
    bench = Bench(MemoryKind.ATTENTION, BYTES_PER_TOKEN * 60)
    bench.keep(bench.read(tokens))
    assert bench.covered(tokens) == 50


@pytest.mark.parametrize("kind", list(MemoryKind))
def test_without_a_budget_nothing_is_kept_and_nothing_breaks(kind: MemoryKind) -> None:
    bench = Bench(kind, 0)
    bench.keep(bench.read(run((1, 100)), snapshots=(40,) if kind.has_snapshots else ()))
    assert bench.budget.used_bytes == 0
    assert bench.memory.saved == []


@pytest.mark.parametrize("kind", [MemoryKind.HYBRID, MemoryKind.WINDOW])
def test_a_cancelled_sequence_is_kept_up_to_its_last_snapshot(kind: MemoryKind) -> None:
    bench = Bench(kind)
    sequence = bench.read(run((1, 100)), snapshots=(40,))
    bench.memory.spoil(0)
    bench.keep(sequence)
    assert bench.resume_points(run((1, 100))) == [40]
    assert bench.covered(run((1, 100))) == 40


@pytest.mark.parametrize("kind", PAGED)
def test_what_is_evicted_to_make_room_may_have_covered_the_path_and_is_saved_again(kind: MemoryKind) -> None:
    """The only pages of a shared header may belong to the conversation that goes."""
    first, second = run((1, 60), (2, 40)), run((1, 60), (3, 40))
    whole = ChainMemory(kind).page_bytes(100) + ChainMemory(kind).snapshot_bytes(100)
    bench = Bench(kind, whole + 10 * BYTES_PER_TOKEN)
    bench.keep(bench.read(first))
    bench.keep(bench.read(second))
    assert bench.covered(second) == 100, "nothing before a resume point is missing"
    assert bench.resume_points(second)[-1] == 100


def test_a_snapshot_that_is_there_is_not_taken_again_but_gains_logits() -> None:
    bench = Bench(MemoryKind.HYBRID)
    sequence = bench.read(run((1, 40)), snapshots=())
    path = bench.saver.path(sequence)
    point = bench.saver.save_point(path, sequence.length)
    assert point is not None
    taken = point.snapshot
    assert bench.saver.save_point(path, sequence.length, np.ones(5, np.float32)) is point
    assert point.snapshot is taken
    assert bench.budget.used_bytes == SNAPSHOT_BYTES + 20
    assert bench.saver.save_point(path, sequence.length) is point


@pytest.mark.parametrize("kind", WITH_SNAPSHOTS)
def test_a_resume_point_does_not_make_room_for_its_own_logits(kind: MemoryKind) -> None:
    bench = Bench(kind)
    tokens = run((1, 41))
    sequence = bench.read(tokens, snapshots=(40,))
    bench.read(run((2, 41)), seq=1, snapshots=(40,))
    bench.budget.capacity.nbytes = bench.budget.used_bytes
    logits = np.zeros(4, np.float32)
    point = bench.saver.save_point(bench.saver.path(sequence), 40, logits)
    assert point is not None
    assert point.logits is logits
    assert point.snapshot is not None
    assert bench.budget.num_points == 1


def test_logits_are_kept_if_there_is_room_for_just_them() -> None:
    logits = np.zeros(4, np.float32)
    for budget_bytes, is_kept in ((logits.nbytes - 1, False), (logits.nbytes, True)):
        bench = Bench(MemoryKind.ATTENTION, budget_bytes)
        sequence = bench.read(run((1, 40)))
        assert (bench.saver.save_point(bench.saver.path(sequence), 40, logits) is not None) == is_kept


@pytest.mark.parametrize("kind", WITH_SNAPSHOTS)
def test_how_much_a_snapshot_adds_below_ram_is_known_to_the_byte_if_ram_has_it(kind: MemoryKind) -> None:
    bench = Bench(kind)
    sequence = bench.read(run((1, 200)), snapshots=(100, 110, 150))
    disk = Tier(ByteBudget("disk", UNLIMITED, LeastRecentlyUsed(), Clock()), Clock())
    saver = Saver(bench.memory, Costs(), disk, PAGE_TOKENS, MemoryBlobStore())
    path = saver.path(sequence, bench.tier.match("", sequence.tokens))
    for position in (100, 110, 150):
        added = saver.snapshot_bytes(path, position)
        before = disk.budget.used_bytes
        assert saver.save_point(path, position) is not None
        assert disk.budget.used_bytes == before + added


def test_how_much_a_snapshot_adds_is_estimated_before_it_is_taken() -> None:
    bench = Bench(MemoryKind.HYBRID)
    sequence = bench.read(run((1, 200)))
    disk = Tier(ByteBudget("disk", UNLIMITED, LeastRecentlyUsed(), Clock()), Clock())
    saver = Saver(bench.memory, Costs(), disk, PAGE_TOKENS, MemoryBlobStore())
    path = saver.path(sequence)
    added = saver.snapshot_bytes(path, 200)
    assert saver.save_point(path, 200) is not None
    assert disk.budget.used_bytes == added


class Fickle(MemoryBlobStore):
    """Takes window pages, and no snapshot: its queue has just become full."""

    def put(self, item: Item, namespace: str, tokens: Tokens, rank: Rank = LOWEST) -> Record | None:
        return None if isinstance(item, Snapshot) else super().put(item, namespace, tokens, rank)


def test_window_pages_of_a_snapshot_that_is_refused_are_released() -> None:
    bench = Bench(MemoryKind.WINDOW)
    sequence = bench.read(run((1, 200)))
    blobs = Fickle()
    budget = ByteBudget("disk", UNLIMITED, LeastRecentlyUsed(), Clock(), lambda data: blobs.release(cast(Record, data)))
    disk = Tier(budget, Clock())
    saver = Saver(bench.memory, Costs(), disk, PAGE_TOKENS, blobs)
    assert saver.save_point(saver.path(sequence), 200) is None
    assert blobs.written_bytes > 0, "they were taken"
    assert blobs.stored == {}
    assert saver.num_refused == 1


# --- saving while the engine may be wanted


@pytest.mark.parametrize("kind", PAGED)
def test_a_save_stops_for_a_request_and_goes_on_later(kind: MemoryKind) -> None:
    bench = Bench(kind)
    bench.memory.step_bytes = 2 * bench.memory.page_bytes(PAGE_TOKENS)  # as where state moves to a GPU
    saver = Saver(bench.memory, Costs(), bench.tier, PAGE_TOKENS)
    sequence = bench.read(run((1, 200)))
    asked = iter([False, False, True])
    saver.save_if_cheap(saver.path(sequence), lambda: next(asked))
    assert bench.memory.saved == [(0, 32), (32, 64), (64, 96), (96, 128)], "two steps of two pages"
    assert saver.lacking_bytes(saver.path(sequence).match, 200)
    saver.save_if_cheap(saver.path(sequence), lambda: False)
    assert bench.memory.saved[4:] == [(128, 160), (160, 192), (192, 200)]
    assert not saver.lacking_bytes(saver.path(sequence).match, 200)


def test_a_step_waits_for_copies_until_a_request_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(MemoryKind.ATTENTION)
    bench.memory.step_bytes = 2 * bench.memory.page_bytes(PAGE_TOKENS)
    saver = Saver(bench.memory, Costs(), bench.tier, PAGE_TOKENS)
    sequence = bench.read(run((1, 200)))
    looks: list[int] = []

    def copies(_: float) -> None:
        looks.append(len(bench.memory.saved))
        bench.memory.is_copying = len(looks) == 1

    monkeypatch.setattr(time, "sleep", copies)
    bench.memory.is_copying = True
    saver.save_if_cheap(saver.path(sequence), lambda: len(looks) > 3)
    assert looks == [0, 0], "nothing is saved before the copies are made"
    assert not saver.lacking_bytes(saver.path(sequence).match, 200)

    sequence = bench.read(run((2, 200)))
    num_saved, bench.memory.is_copying = len(bench.memory.saved), True
    monkeypatch.setattr(time, "sleep", looks.append)
    saver.save_if_cheap(saver.path(sequence), lambda: len(looks) > 3)
    assert len(bench.memory.saved) == num_saved, "the request does not wait"
