"""A disk that hangs costs what was on it, and not the engine's thread. A slow one costs time only."""

from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np
import pytest

from leftoff.cache.blob_store import Item, Record, StoredPath
from leftoff.cache.blob_tier import TierSettings
from leftoff.cache.cache import Cache
from leftoff.cache.fetch import GRACE_S, PATIENCE_S, Fetch, Fetches, Preparation, Search, Watch
from leftoff.engine.memory.base import MemoryKind, Snapshot
from leftoff.types import Prompt
from tests.cache.chain import ChainMemory
from tests.cache.driver import Driver
from tests.cache.memory_blob_store import MemoryBlobStore
from tests.cache.trees import UNLIMITED


class Stuck(MemoryBlobStore):
    """Nothing comes until it is told to bring it."""

    def get(self, records: Sequence[Record]) -> list[Future[Item]]:
        self.asked: list[Future[Item]] = [Future() for _ in records]
        return self.asked


RECORDS = [Record(name, 1, Stuck()) for name in "abc"]


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def fetched(store: MemoryBlobStore, records: Sequence[Record], watch: Watch, spared_s: float = 1.0) -> Fetches:
    return Fetches([Fetch(store, records, watch, spared_s)])


def opened(store: MemoryBlobStore, kind: MemoryKind) -> Driver:
    memory = ChainMemory(kind)
    cache = Cache(memory, num_slots=1, budget_bytes=UNLIMITED, tiers=[TierSettings(store, UNLIMITED)], page_tokens=32)
    return Driver(cache, memory, chunk=20)


@pytest.mark.parametrize("kind", [kind for kind in MemoryKind if kind is not MemoryKind.OPAQUE])
def test_a_request_does_without_a_disk_that_hangs(kind: MemoryKind) -> None:
    prompt = Prompt(np.arange(150, dtype=np.int32))
    before = opened(MemoryBlobStore(), kind)
    before.request(prompt)
    before.cache.close(1.0)
    assert before.cache.disk is not None
    store = before.cache.disk.blobs
    assert isinstance(store, MemoryBlobStore)
    driver = opened(Stuck(stored=store.stored), kind)
    disk = driver.cache.disk
    assert disk is not None
    disk.watch = Watch(patience_s=0.05, grace_s=0.05)
    assert driver.cache.plan(prompt).resume > 0
    turn = driver.request(prompt)
    assert turn.report.reused == 0
    driver.cache.check_integrity()


def test_one_that_brings_something_now_and_then_is_waited_for() -> None:
    store, time = Stuck(), Time()
    watch = Watch(clock=time)
    fetch = fetched(store, RECORDS, watch)
    for answer in store.asked:
        time.now += PATIENCE_S - 1
        assert not fetch.is_done
        answer.set_result(Snapshot(1, RECORDS[0]))
    assert fetch.is_done
    assert fetch.lost() == []


def test_one_that_brings_something_now_and_then_is_not_waited_for_much_longer_than_it_spares() -> None:
    store, time = Stuck(), Time()
    fetch = fetched(store, RECORDS, Watch(clock=time, is_bounded=True), spared_s=2.0)
    time.now += PATIENCE_S - 1
    store.asked[0].set_result(Snapshot(1, RECORDS[0]))
    time.now += 2.5
    early = fetch.is_done
    time.now += 0.5
    assert (early, fetch.is_done) == (False, True)
    assert fetch.lost() == RECORDS[1:]


def test_what_has_come_before_it_hung_is_there() -> None:
    store, time = Stuck(), Time()
    fetch = fetched(store, RECORDS, Watch(clock=time))
    store.asked[0].set_result(Snapshot(1, RECORDS[0]))
    time.now += PATIENCE_S
    assert fetch.is_done
    assert fetch.lost() == RECORDS[1:]


def test_while_it_hangs_others_hardly_wait_and_then_it_is_trusted_again() -> None:
    store, time = Stuck(), Time()
    watch = Watch(clock=time)
    first = fetched(store, RECORDS, watch)
    stuck = store.asked
    time.now += PATIENCE_S
    second = fetched(store, RECORDS, watch)
    assert [first.is_done, second.is_done] == [True, False]
    time.now += GRACE_S
    assert [first.lost(), second.lost()] == [RECORDS, RECORDS]
    stuck[0].set_result(Snapshot(1, RECORDS[0]))
    assert not second.is_done


def test_one_file_that_hangs_leaves_the_others_readable() -> None:
    store, time = Stuck(), Time()
    watch = Watch(clock=time)
    fetched(store, RECORDS[:1], watch)
    time.now += 10 * PATIENCE_S
    fetch = fetched(store, RECORDS[1:], watch)
    store.asked[0].set_result(Snapshot(1, RECORDS[1]))
    time.now += PATIENCE_S - 1
    assert not fetch.is_done
    store.asked[1].set_result(Snapshot(1, RECORDS[2]))
    assert fetch.lost() == []


def test_a_disk_that_was_not_asked_for_long_does_not_hang() -> None:
    store, time = Stuck(), Time()
    watch = Watch(clock=time)
    time.now += 10 * PATIENCE_S
    assert not fetched(store, RECORDS, watch).is_done


def test_what_is_in_memory_says_nothing_of_the_disk() -> None:
    time = Time()
    watch = Watch(clock=time)
    stuck = fetched(Stuck(), RECORDS, watch)
    time.now += PATIENCE_S
    store = MemoryBlobStore()
    record = store.put(Snapshot(1, RECORDS[0]), "", np.zeros(1, np.int32))
    assert record is not None
    assert fetched(store, [record], watch).lost() == []
    assert stuck.is_done


def test_a_prompt_is_looked_up_everywhere_before_it_is_fetched_and_nobody_blocks() -> None:
    answers: list[Future[StoredPath | None]] = [Future(), Future()]
    found: list[StoredPath | None] = []
    events: list[str] = []
    store = Stuck()

    def fetch() -> Fetches:
        events.append("fetch")
        return fetched(store, RECORDS, Watch(clock=Time()))

    preparation = Preparation(
        [Search(answer, found.append) for answer in answers], fetch, lambda: events.append("wake")
    )
    path = StoredPath("", np.zeros(1, np.int32), [], [])
    answers[1].set_result(path)
    preparation.proceed()
    assert (preparation.is_waiting, found, events) == (True, [], ["wake"])
    answers[0].set_result(None)
    assert (preparation.is_waiting, found, events) == (False, [], ["wake"] * 2), "the trees belong to another thread"
    preparation.proceed()
    assert (preparation.is_waiting, found, events) == (True, [None, path], ["wake", "wake", "fetch"])
    for answer in store.asked:
        assert preparation.is_waiting
        answer.set_result(Snapshot(1, RECORDS[0]))
    assert not preparation.is_waiting
    assert events.count("wake") > 2
    preparation.proceed()
    assert (found, events.count("fetch")) == ([None, path], 1)


def test_a_prompt_that_is_nowhere_else_is_not_waited_for() -> None:
    preparation = Preparation([], lambda: None)
    assert not preparation.has_work
    assert not preparation.is_waiting
