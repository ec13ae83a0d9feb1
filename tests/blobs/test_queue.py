"""What waits to be written: the most valuable first, whole groups, and the least valuable is given up."""

from leftoff.blobs.blob import Blob, Write
from leftoff.blobs.entries import Entry
from leftoff.blobs.path_hash import HashedPath
from leftoff.blobs.queue import WriteQueue
from leftoff.cache.blob_store import Item, Rank, Worth
from tests.cache.memory_blob_store import MemoryBlobStore
from tests.disk.stores import page, path_of, snapshot

PATH = HashedPath("", path_of(1000))
OLD_END, NEW_END = Rank(Worth.END, 1), Rank(Worth.END, 5)
SHARED, MIDDLE = Rank(Worth.SHARED, 2), Rank(Worth.MIDDLE, 9)


def entry(item: Item) -> Entry:
    blob = Blob.of(item, PATH)
    return Entry(blob.name, blob.file_bytes, MemoryBlobStore(), blob, Write(blob, item, PATH))


def filled(*ranks: Rank) -> tuple[WriteQueue, list[Entry]]:
    """A queue with a page and a snapshot of each rank."""
    queue = WriteQueue()
    entries = [entry(item) for n in range(len(ranks)) for item in (page(100 * n, 100 * n + 50), snapshot(100 * n + 50))]
    for index, each in enumerate(entries):
        queue.put(each, ranks[index // 2])
    return queue, entries


def test_shared_points_come_first_then_ends_newest_first_then_the_rest() -> None:
    queue, entries = filled(MIDDLE, OLD_END, SHARED, NEW_END)
    middle, old, shared, new = entries[:2], entries[2:4], entries[4:6], entries[6:]
    assert [*queue] == [*shared, *new, *old, *middle]
    assert [queue.pop() for _ in range(len(queue))] == [*shared, *new, *old, *middle]
    assert queue.nbytes == 0


def test_the_least_valuable_group_is_given_up_as_a_whole() -> None:
    queue, entries = filled(OLD_END, MIDDLE, NEW_END)
    assert queue.bytes_below(NEW_END) == sum(each.blob.file_bytes for each in entries[:4])
    assert queue.give_up(1, NEW_END) == entries[2:4], "one byte is lacking: the snapshot would be of no use alone"
    assert queue.give_up(1, OLD_END) == [], "nothing of the same rank or a higher one"
    assert queue.give_up(10**9, SHARED) == [*entries[:2], *entries[4:]]
    assert len(queue) == 0
    assert queue.nbytes == 0


def test_a_page_rises_with_the_point_that_needs_it_and_never_falls() -> None:
    queue, (first_page, first, second_page, second) = filled(OLD_END, NEW_END)
    queue.promote(first_page, SHARED)
    queue.promote(second, OLD_END)
    assert [*queue] == [first_page, second_page, second, first]
    assert queue.pop() is first_page
    queue.promote(first_page, SHARED)
    assert first_page not in queue, "it is being written"


def test_who_is_promoted_to_its_own_rank_keeps_its_place() -> None:
    queue, entries = filled(NEW_END)
    queue.promote(entries[0], NEW_END)
    assert [*queue] == entries


def test_an_entry_is_known_by_itself_not_by_its_name() -> None:
    queue, entries = filled(OLD_END)
    again = entry(page(0, 50))
    assert again.name == entries[0].name
    assert again not in queue
    queue.remove(entries[0])
    queue.put(again, MIDDLE)
    assert again in queue
    assert queue.nbytes == again.blob.file_bytes + entries[1].blob.file_bytes


def test_a_queue_that_was_cleared_begins_anew() -> None:
    queue, entries = filled(OLD_END, MIDDLE)
    queue.clear()
    assert (len(queue), queue.nbytes, [*queue]) == (0, 0, [])
    assert not any(each in queue for each in entries)
    queue.put(entries[0], MIDDLE)
    assert queue.pop() is entries[0]


def test_of_one_name_the_last_that_was_put_waits() -> None:
    queue, (first, *_) = filled(MIDDLE)
    again = entry(page(0, 50))
    assert again.name == first.name
    queue.put(again, SHARED)
    assert again in queue
    assert first not in queue
    assert queue.pop() is again
    assert [each.name for each in queue] != [first.name]
    assert queue.nbytes == sum(each.nbytes for each in queue)
