"""Models share one capacity: the least valuable goes first, whose ever it is, and together they never have more."""

import time
from threading import Thread

import numpy as np
import pytest

from leftoff.cache.blob_tier import TierSettings
from leftoff.cache.cache import Cache
from leftoff.cache.capacity import Capacity
from leftoff.cache.costs import Costs
from leftoff.cache.placement import Placement
from leftoff.cache.policy import ValuePerByte
from leftoff.cache.wear import Wear
from leftoff.engine.memory.base import MemoryKind
from leftoff.types import Prompt, Tokens
from tests.cache.chain import ChainMemory
from tests.cache.driver import Driver
from tests.cache.memory_blob_store import MemoryBlobStore
from tests.cache.trees import Clock, Grove

MINUTE = 60.0


class Pair:
    """Two models under one clock that share room for five points."""

    def __init__(self, *, times_slower: float = 1.0) -> None:
        self.clock, self.capacity = Clock(), Capacity(500)
        slow = Costs(prefill_tokens_per_ms=1.0 / times_slower)
        self.one = self._model(Costs(prefill_tokens_per_ms=1.0))
        self.other = self._model(slow)

    def _model(self, costs: Costs) -> Grove:
        return Grove(self.capacity, ValuePerByte(), clock=self.clock, costs=costs)

    def keep(self, model: Grove, letters: str) -> None:
        with model.budget.lock:
            assert model.budget.make_room(100)
            model.keep(letters)
        model.check()
        assert self.capacity.used_bytes <= 500

    def kept(self, model: Grove) -> list[str]:
        return [letters for letters in "abcdefgh" if model.match(letters * 3).point_at(3)]


def test_a_model_that_nobody_asks_gives_way() -> None:
    pair = Pair()
    for letter in "abc":
        pair.keep(pair.one, 3 * letter)
    pair.clock.now += 60 * MINUTE
    for letter in "defgh":
        pair.keep(pair.other, 3 * letter)
    assert (pair.kept(pair.one), pair.kept(pair.other)) == ([], [*"defgh"])
    assert pair.one.budget.num_evictions == 3


def test_of_two_that_rest_the_one_stays_that_takes_longer_to_read_again() -> None:
    pair = Pair(times_slower=10.0)
    pair.keep(pair.other, "aaa")
    pair.clock.now += 10 * MINUTE
    pair.keep(pair.one, "bbb")
    pair.clock.now += 10 * MINUTE
    for letter in "cdef":
        pair.keep(pair.one, 3 * letter)
    assert pair.kept(pair.other) == ["a"], "it is older, and worth more"
    assert pair.kept(pair.one) == [*"cdef"]


@pytest.mark.parametrize("has_slow_one_asking", [False, True])
def test_what_is_in_use_outlasts_what_another_model_was_not_asked_for(has_slow_one_asking: bool) -> None:
    """However much slower the other is: else it would take all, and never give it back."""
    pair = Pair(times_slower=1e6)
    resting, asked = (pair.one, pair.other) if has_slow_one_asking else (pair.other, pair.one)
    for letter in "abcde":
        pair.keep(resting, 3 * letter)
    pair.clock.now += 10 * MINUTE
    for letter in "fgh":
        pair.keep(asked, 3 * letter)
    assert pair.kept(asked) == [*"fgh"]


def test_what_was_reserved_for_one_is_not_given_to_another() -> None:
    pair = Pair()
    with pair.one.budget.lock:
        assert pair.one.budget.make_room(400)
        assert not pair.other.budget.claim(200)
        assert pair.other.budget.claim(100)
        pair.one.keep("aaa")
        assert (pair.one.budget.free_bytes, pair.capacity.free_bytes) == (300, 0)


def test_what_is_spared_is_spared_by_others_too() -> None:
    pair = Pair()
    pair.keep(pair.one, "aaa")
    spared = pair.one.match("aaa").point_at(3)
    assert spared is not None
    pair.clock.now += 60 * MINUTE
    with pair.one.budget.lock:
        assert pair.one.budget.make_room(400, spared=[spared])
        assert not pair.one.budget.make_room(500, spared=[spared])
    assert pair.kept(pair.one) == ["a"]


# --- threads


class Model:
    """A cache on a thread of its own, which lets the trees go while it computes."""

    def __init__(self, kind: MemoryKind, ram: Capacity, disk: Capacity, seed: int) -> None:
        self.memory, self.store = ChainMemory(kind, 2), MemoryBlobStore()
        self.cache = Cache(
            self.memory,
            num_slots=2,
            budget_bytes=ram,
            tiers=[TierSettings(self.store, disk)],
            placement=Placement(smallest_gap=40, slack=4),
            page_tokens=32,
        )
        decode = self.memory.decode

        def computed(seq: int, tokens: Tokens) -> None:
            with self.cache.lock.let_go():
                time.sleep(0)
            decode(seq, tokens)

        self.memory.decode = computed  # type: ignore[method-assign]
        self._driver = Driver(self.cache, self.memory)
        self._random = np.random.default_rng(seed)
        self.errors: list[BaseException] = []

    def work(self, num_turns: int) -> None:
        try:
            told = [np.full(8, number, np.int32) for number in range(6)]
            for _ in range(num_turns):
                number = int(self._random.integers(6))
                told[number] = np.append(told[number], self._random.integers(0, 99, 40)).astype(np.int32)
                with self.cache.lock:
                    self._driver.request(Prompt(told[number][-400:]))
                    self.cache.save_idle()
        except BaseException as error:
            self.errors.append(error)


@pytest.mark.parametrize("ram_bytes", [4_000, 20_000])
def test_threads_of_models_never_have_more_together_nor_wait_for_each_other(ram_bytes: int) -> None:
    ram, disk = Capacity(ram_bytes), Capacity(30_000)
    kinds = (MemoryKind.ATTENTION, MemoryKind.HYBRID, MemoryKind.WINDOW)
    models = [Model(kind, ram, disk, seed) for seed, kind in enumerate(kinds)]
    threads = [Thread(target=model.work, args=(60,), daemon=True) for model in models]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert not any(thread.is_alive() for thread in threads)
    assert [model.errors for model in models] == [[]] * 3
    for model in models:
        model.cache.check_integrity()
    assert 0.5 * ram_bytes < ram.most_bytes <= ram_bytes
    assert sum(model.cache.ram.budget.num_evictions for model in models) > 0
    assert disk.most_bytes <= 30_000
    assert sum(model.store.written_bytes for model in models) <= 1.5 * disk.most_bytes
    for model in models:
        model.cache.close(0.0)
    assert (ram.used_bytes, disk.used_bytes) == (0, 0)


def test_the_wear_of_a_disk_is_that_of_all_models() -> None:
    pair = Pair()
    pair.capacity.wear = Wear()
    for letter in "abcde":
        pair.keep(pair.one, 3 * letter)
    pair.clock.now += 60 * MINUTE
    with pair.other.budget.lock:
        for letter, is_taken in ("f", True), ("g", True), ("h", False):
            assert pair.other.budget.make_room(100) == is_taken, "half of what was kept may be evicted, for both"
            if is_taken:
                pair.other.keep(3 * letter)
    assert pair.one.budget.num_evictions == 2
