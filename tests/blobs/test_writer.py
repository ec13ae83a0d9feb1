"""Write-behind over a medium that can be stopped and broken: what is written, in which order, and what is lost."""

import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise

import pytest

from leftoff.blobs.blob import Blob, Write
from leftoff.blobs.entries import Entry, EntryTable
from leftoff.blobs.medium import PathBlobs, Use
from leftoff.blobs.path_hash import HashedPath
from leftoff.blobs.writer import QueueLimit, Writer
from leftoff.cache.blob_store import LOWEST, Item, Rank, Worth
from leftoff.engine.memory.arena import Arena
from tests.cache.memory_blob_store import MemoryBlobStore
from tests.disk.stores import page, path_of
from tests.patience import PATIENCE_S, until

PATH = HashedPath("", path_of(5000))
END, SHARED = Rank(Worth.END, 1), Rank(Worth.SHARED, 1)
RARELY_S = PATIENCE_S  # a retry that is not waited for


class ShelfMedium:
    """Keeps names in memory. A write waits for the `gate`, and raises what `problem_with` one of its blobs there is."""

    problems = (OSError,)
    bytes_per_ms = call_ms = None

    def __init__(self) -> None:
        self.left_bytes = math.inf
        self.gate = threading.Event()
        self.gate.set()
        self.is_at_gate = threading.Event()
        self.problem_with: dict[str, Exception] = {}
        self.gone: list[Blob] = []  # as `note` says
        self.forgotten: set[str] = set()  # as `recover` says
        self.tried: list[list[str]] = []  # batches, whether or not they were written
        self.written: list[str] = []
        self.removed: list[str] = []
        self.uses: list[Use] = []
        self.failures: list[Exception] = []
        self.num_recovered = 0
        self.is_full = False
        self.num_cleared_after: int | None = None  # writes
        self.is_closed = False

    def left_paths(self) -> Iterable[PathBlobs]:
        return ()

    def read(self, blob: Blob, arena: Arena) -> Item:
        raise NotImplementedError

    def write(self, writes: Sequence[Write]) -> int:
        self.is_at_gate.set()
        assert self.gate.wait(PATIENCE_S)
        names = [write.blob.name for write in writes]
        self.tried.append(names)
        for name in names:
            if name in self.problem_with:
                raise self.problem_with[name]
        self.written += names
        return sum(write.blob.file_bytes for write in writes)

    def remove(self, blobs: Sequence[Blob]) -> None:
        self.removed += [blob.name for blob in blobs]

    def clear(self, is_meant: Callable[[str], bool]) -> None:
        assert is_meant("")
        if self.problem_with:
            raise next(iter(self.problem_with.values()))
        self.num_cleared_after = len(self.written)

    def note(self, uses: Sequence[Use]) -> Sequence[Blob]:
        self.uses += uses
        return self.gone

    def failed(self, problem: Exception) -> None:
        self.failures.append(problem)

    def recover(self, written: Collection[str]) -> Collection[str]:
        self.num_recovered += 1
        return self.forgotten & {*written}

    def check_room(self) -> None:
        if self.is_full:
            raise OSError("no space")

    def close(self) -> None:
        self.is_closed = True


class Desk:
    """A writer with its table and medium. Every entry is of the same size."""

    def __init__(
        self,
        *,
        queue: int | QueueLimit = 100,
        retry_s: float = RARELY_S,
        is_shared: bool = False,
        gives_way: bool = False,
    ) -> None:
        self.medium, self.table = ShelfMedium(), EntryTable()
        self.nbytes = self.entry(0).nbytes
        self.writer = Writer(
            *(self.medium, self.table),
            queue_bytes=queue if isinstance(queue, QueueLimit) else queue * self.nbytes,
            batch_bytes=100 * self.nbytes,
            retry_s=retry_s,
            gives_way=gives_way,
            is_shared=is_shared,
        )

    def entry(self, number: int) -> Entry:
        item = page(10 * number, 10 * number + 10)
        blob = Blob.of(item, PATH)
        return Entry(blob.name, blob.file_bytes, MemoryBlobStore(), blob, Write(blob, item, PATH))

    def put(self, number: int, rank: Rank = LOWEST) -> Entry:
        entry = self.entry(number)
        self.table.add(entry)
        self.writer.put(entry, rank)
        return entry

    def put_behind_gate(self) -> Entry:
        """An entry that is being written, and stays so until the gate is opened."""
        self.medium.gate.clear()
        self.medium.is_at_gate.clear()
        entry = self.put(99)
        assert self.medium.is_at_gate.wait(PATIENCE_S)
        return entry

    def written(self) -> list[str]:
        self.medium.gate.set()
        assert self.writer.flush(PATIENCE_S)
        return self.medium.written

    def lost(self) -> list[str]:
        return [record.name for record in self.table.take_lost()]


@contextmanager
def opened(desk: Desk) -> Iterator[Desk]:
    desk.writer.start()
    try:
        yield desk
    finally:
        desk.medium.gate.set()
        desk.writer.stop(PATIENCE_S)


def names(*entries: Entry) -> list[str]:
    return [entry.name for entry in entries]


def test_the_highest_rank_is_written_first_and_what_is_released_meanwhile_never() -> None:
    with opened(Desk()) as desk:
        first = desk.put_behind_gate()
        low, dropped, high = desk.put(1), desk.put(2), desk.put(3, SHARED)
        assert desk.writer.num_waiting == 4
        desk.table.drop(dropped)
        desk.writer.release([dropped])
        assert desk.written() == names(first, high, low)
        assert desk.writer.num_waiting == 0
        assert desk.medium.removed == []
        assert desk.writer.written_bytes == 3 * desk.nbytes
        desk.table.drop(low)
        desk.writer.release([low])
        assert desk.writer.flush(PATIENCE_S)
        assert desk.medium.removed == names(low), "it was written: it is removed"


def test_what_machines_share_stays_when_one_of_them_releases_it() -> None:
    with opened(Desk(is_shared=True)) as desk:
        entry = desk.put(1)
        desk.written()
        desk.table.drop(entry)
        desk.writer.release([entry])
        assert desk.writer.flush(PATIENCE_S)
        assert desk.medium.removed == []
        desk.writer.remove([entry])
        assert desk.writer.flush(PATIENCE_S)
        assert desk.medium.removed == names(entry)


def test_what_was_put_again_is_not_removed_and_what_others_wrote_is() -> None:
    with opened(Desk()) as desk:
        entry = desk.put(1)
        desk.written()
        desk.put_behind_gate()
        desk.table.drop(entry)
        again = desk.put(1)
        desk.writer.release([entry])
        desk.written()
        assert desk.medium.removed == names(again), "before it was written again"
        assert desk.medium.written[-1] == again.name
        desk.writer.remove([entry])
        assert desk.writer.flush(PATIENCE_S)
        assert desk.medium.removed == names(again), "what is there now was written since"


def test_a_full_queue_gives_up_the_lowest_rank_and_tells() -> None:
    with opened(Desk(queue=3)) as desk:
        first = desk.put_behind_gate()
        low, end = desk.put(1), desk.put(2, END)
        assert not desk.writer.has_room(desk.nbytes, LOWEST)
        assert not desk.writer.has_room(2 * desk.nbytes, END), "of a lower rank there is one"
        assert desk.writer.has_room(desk.nbytes, END)
        assert desk.lost() == []
        high = desk.put(3, SHARED)
        assert desk.lost() == names(low)
        assert desk.written() == names(first, high, end)


def test_the_queues_of_several_models_are_bounded_together() -> None:
    limit = QueueLimit(3 * Desk().nbytes)
    with opened(Desk(queue=limit)) as one:
        with opened(Desk(queue=limit)) as other:
            other.put_behind_gate()
            other.put(1)
            assert one.writer.has_room(2 * one.nbytes, LOWEST), "its own is empty"
            one.put_behind_gate()
            assert not one.writer.has_room(one.nbytes, LOWEST)
            other.written()
            assert one.writer.has_room(2 * one.nbytes, LOWEST)
        one.written()


def test_what_is_larger_than_the_queue_is_taken_while_nothing_waits() -> None:
    with opened(Desk(queue=1)) as desk:
        assert desk.writer.has_room(5 * desk.nbytes, LOWEST)
        desk.put_behind_gate()
        assert not desk.writer.has_room(5 * desk.nbytes, LOWEST)
        desk.written()
        assert desk.writer.has_room(5 * desk.nbytes, LOWEST)


def test_what_waits_counts_towards_what_may_be_written_today() -> None:
    with opened(Desk()) as desk:
        desk.medium.left_bytes = 3 * desk.nbytes
        desk.put_behind_gate()
        desk.put(1)
        assert desk.writer.left_bytes == desk.nbytes
        assert desk.writer.has_room(desk.nbytes, SHARED)
        assert not desk.writer.has_room(desk.nbytes + 1, SHARED)


def test_a_busy_engine_is_given_way_to_until_half_the_queue_waits() -> None:
    with opened(Desk()) as other, opened(Desk(queue=8, gives_way=True)) as desk:
        other.writer.hold_back(is_busy=True)
        desk.writer.hold_back(is_busy=True)
        entries = [desk.put(number) for number in range(3)]
        other.put(0)
        assert until(lambda: other.medium.written), "with cores to spare it is written at once"
        assert desk.medium.written == []
        entries.append(desk.put(3))
        assert until(lambda: desk.medium.written == names(*entries))


def test_it_writes_when_the_engine_has_become_idle() -> None:
    with opened(Desk(gives_way=True)) as desk:
        desk.writer.hold_back(is_busy=True)
        entry = desk.put(1)
        desk.writer.hold_back(is_busy=False)
        assert until(lambda: desk.medium.written == names(entry))


def test_while_the_engine_stays_busy_it_writes_now_and_then() -> None:
    with opened(Desk(retry_s=0.01, gives_way=True)) as desk:
        desk.writer.hold_back(is_busy=True)
        entry = desk.put(1)
        assert until(lambda: desk.medium.written == names(entry))


def test_flushing_does_not_wait_for_the_engine_and_says_if_it_took_too_long() -> None:
    with opened(Desk(gives_way=True)) as desk:
        desk.writer.hold_back(is_busy=True)
        entry = desk.put(1)
        assert desk.written() == names(entry)
        desk.medium.gate.clear()
        later = desk.put(2)
        assert not desk.writer.flush(0.01)
        assert desk.written() == names(entry, later)
        desk.put(3)
        assert desk.writer.num_waiting == 1, "nobody flushes any more, and the engine is busy"


def test_a_problem_of_its_own_medium_gives_up_all_that_waits_until_it_is_back() -> None:
    desk = Desk(retry_s=0.02)
    with opened(desk):
        kept = desk.put(5)
        desk.written()
        first = desk.put_behind_gate()
        second = desk.put(1)
        desk.medium.problem_with[first.name] = problem = OSError("no space")
        desk.medium.forgotten = {kept.name}
        desk.medium.gate.set()
        assert until(lambda: desk.medium.num_recovered)
        assert until(lambda: desk.writer.has_room(1, LOWEST))
        assert desk.medium.failures == [problem]
        assert {*desk.lost()} == {first.name, second.name, kept.name}, "two could not be written, one is gone since"
        assert desk.writer.num_waiting == 0
        later = desk.put(2)
        assert desk.written() == names(kept, later)


def test_a_medium_without_room_deletes_what_it_has() -> None:
    desk = Desk()
    desk.medium.is_full = True
    desk.writer.start(OSError("no space"))
    desk.writer.clear(lambda _: True).result(PATIENCE_S)
    assert not desk.writer.has_room(1, SHARED), "it writes nothing all the same"
    desk.medium.is_full = False
    desk.writer.clear(lambda _: True).result(PATIENCE_S)
    assert until(lambda: desk.writer.has_room(1, SHARED))
    desk.writer.stop(0)


def test_while_its_own_medium_fails_it_takes_nothing() -> None:
    desk = Desk()
    desk.writer.start(OSError("not mounted"))
    assert not desk.writer.has_room(1, SHARED)
    entry = desk.put(1, SHARED)
    assert desk.lost() == names(entry)
    assert desk.medium.written == []
    desk.writer.stop(0)
    assert desk.medium.is_closed


def test_what_others_count_on_is_tried_again_one_by_one_after_a_problem() -> None:
    with opened(Desk(retry_s=0.02, is_shared=True)) as desk:
        first = desk.put_behind_gate()
        others = [desk.put(number) for number in range(3)]
        desk.medium.problem_with[first.name] = OSError("the network is gone")
        desk.medium.gate.set()
        assert until(lambda: desk.medium.num_recovered > 2)
        assert desk.writer.has_room(1, LOWEST), "it may wait here meanwhile"
        desk.medium.problem_with.clear()
        assert until(lambda: len(desk.medium.written) == 4)
        assert {*desk.medium.written} == {*names(first, *others)}
        assert desk.lost() == []
        after_failure = [later for batch, later in pairwise(desk.medium.tried) if first.name in batch]
        assert {len(batch) for batch in after_failure} == {1}


def test_a_blob_that_the_medium_refuses_again_and_again_is_lost_and_no_other() -> None:
    with opened(Desk(retry_s=0.001, is_shared=True)) as desk:
        bad = desk.entry(50)
        desk.medium.problem_with[bad.name] = OSError("too large")
        desk.table.add(bad)
        desk.writer.put(bad, SHARED)
        good: list[str] = []
        while desk.table.find(bad.name) is not None and len(good) < 100:
            good.append(desk.put(len(good)).name)
            assert until(lambda: good[-1] in desk.medium.written), "though what is worth more is tried again and again"
        assert desk.lost() == [bad.name]
        assert desk.medium.written == good
        assert len(good) > 15, "it was given many chances"


def test_a_mistake_of_ours_loses_one_blob_and_does_not_pause_what_is_shared() -> None:
    with opened(Desk(is_shared=True)) as desk:
        desk.put_behind_gate()
        bad, *good = [desk.put(number) for number in range(3)]
        desk.medium.problem_with[bad.name] = ValueError("cannot be sealed")
        desk.medium.gate.set()
        assert until(lambda: desk.lost() == [bad.name])
        assert until(lambda: {*names(*good)} <= {*desk.medium.written})
        assert desk.medium.num_recovered == 0


@pytest.mark.parametrize("is_shared", [False, True])
def test_uses_are_told_with_the_chores_and_hits_are_added_up(is_shared: bool) -> None:
    with opened(Desk(retry_s=0.02, is_shared=is_shared)) as desk:
        hit, promoted = desk.put(1), desk.put(2)
        desk.written()
        desk.writer.count_hits([hit])
        desk.writer.count_hits([hit])
        desk.writer.promote([promoted], SHARED)
        desk.writer.promote([promoted], END)
        num_uses = 1 + is_shared
        assert until(lambda: sum(use.num_hits for use in desk.medium.uses) == 2 and len(desk.medium.uses) >= num_uses)
        assert {use.blob.name for use in desk.medium.uses} == {hit.name, promoted.name} if is_shared else {hit.name}
        assert promoted.worth is Worth.SHARED
        desk.medium.gone = [hit.blob]
        assert until(lambda: desk.lost() == [hit.name])


def test_closing_tells_the_last_uses_and_takes_nothing_more() -> None:
    desk = Desk()
    with opened(desk):
        entry = desk.put(1)
        desk.written()
        desk.writer.count_hits([entry])
    assert [use.num_hits for use in desk.medium.uses] == [1]
    assert desk.medium.is_closed
    assert not desk.writer.has_room(1, SHARED)
    late = desk.put(2)
    assert desk.lost() == names(late)


def test_deleting_comes_after_what_is_being_written_and_before_what_is_put_later() -> None:
    with opened(Desk()) as desk:
        desk.put_behind_gate()
        deleted = desk.writer.clear(lambda name: name == "")
        desk.put(1, SHARED)
        assert not deleted.done()
        desk.medium.gate.set()
        deleted.result(PATIENCE_S)
        assert len(desk.written()) == 2
        assert desk.medium.num_cleared_after == 1


def test_who_deletes_is_told_that_the_medium_fails_or_is_closed() -> None:
    desk = Desk()
    with opened(desk):
        desk.medium.problem_with["any"] = OSError("it fails")
        with pytest.raises(OSError, match="it fails"):
            desk.writer.clear(lambda name: name == "").result(PATIENCE_S)
    assert desk.writer.clear(lambda name: name == "").cancelled()
