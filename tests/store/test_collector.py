"""The store is kept within its budget by one machine at a time, and an index that has forgotten is rebuilt."""

from contextlib import closing
from pathlib import Path

from redis import Redis as Client

from leftoff.cache.blob_store import Rank, Record, Worth
from leftoff.store.collector import Collector
from leftoff.store.index import IndexUsage
from leftoff.store.objects import ObjectName
from tests.disk.stores import FINGERPRINT, page, path_of
from tests.patience import PATIENCE_S, until
from tests.store.conftest import Opened, SharedBlobs
from tests.store.parts import Redis
from tests.store.test_medium import ITEMS, found, stored


def collector(blobs: SharedBlobs, budget_bytes: int) -> Collector:
    return Collector(blobs.medium.link, budget_bytes)


def files(folder: Path) -> list[str]:
    return sorted(file.name for file in (folder / "store").rglob("*.*.*"))


def told(blobs: SharedBlobs, count: int) -> list[Record]:
    """The records that are said to be lost, once there are so many."""
    lost: list[Record] = []

    def are_all() -> bool:
        lost.extend(blobs.take_lost())
        return len(lost) >= count

    assert until(are_all)
    return lost


def test_what_is_worth_least_goes_first(opened: Opened, tmp_path: Path) -> None:
    blobs = opened("01" * 32)
    for number, worth in enumerate((Worth.SHARED, Worth.MIDDLE, Worth.END)):
        blobs.put(page(0, 100, nbytes=5000, seed=number), "", path_of(100, seed=200 + number), Rank(worth))
    assert blobs.flush(PATIENCE_S)
    link = blobs.medium.link
    usage = link.call(link.index.usage()).result()
    assert (usage.num_blobs, usage.nbytes > 15_000) == (3, True)
    link.call(collector(blobs, 12_000).collect()).result()
    left = [found(blobs, path_of(100, seed=200 + number)) is not None for number in range(3)]
    assert left == [True, False, True]
    assert len(files(tmp_path)) == 2
    assert link.call(link.index.usage()).result().nbytes < 12_000


def test_an_index_that_was_killed_is_rebuilt_from_the_objects(opened: Opened, index: Redis) -> None:
    blobs, tokens = opened("02" * 32), path_of(400, seed=300)
    stored(blobs, tokens)
    index.kill()
    assert found(blobs, tokens) is None
    index.start()
    blobs.medium.link.call(collector(blobs, 1 << 30).collect()).result()
    path = found(opened("02" * 32), tokens)
    assert path is not None
    assert len(path.items) == len(ITEMS)
    assert blobs.medium.link.call(blobs.medium.link.index.usage()).result().num_blobs == 3


def test_bytes_are_counted_once_also_if_a_full_redis_evicts_entries(opened: Opened, index: Redis) -> None:
    """With maxmemory and volatile-lru, as is usual in clouds: the store would seem full, and be emptied for ever."""
    blobs, tokens, client = opened("05" * 32), path_of(400, seed=303), Client.from_url(index.url)
    link = blobs.medium.link

    def evict() -> None:
        assert client.delete(*client.scan_iter(match=link.index.keys.at(b"").replace(b"{", b"[{]") + b"*"))

    with closing(client):
        stored(blobs, tokens)
        usage = link.call(link.index.usage()).result()
        evict()
        stored(opened("05" * 32), tokens)  # another machine cannot know that it is there
        assert link.call(link.index.usage()).result() == usage
        evict()
        link.call(collector(blobs, 0).prune(0)).result()
        assert link.call(link.index.usage()).result() == IndexUsage(0, 0)


def test_bytes_that_a_full_redis_has_evicted_stop_no_collecting(opened: Opened, index: Redis) -> None:
    """With allkeys-lru any key may go, also the sum of the bytes, which is below zero then."""
    blobs, tokens, client = opened("08" * 32), path_of(400, seed=307), Client.from_url(index.url)
    link = blobs.medium.link
    with closing(client):
        stored(blobs, tokens)
        client.delete(link.index.keys.bytes)
        names = [name for name in map(ObjectName.parse, link.call(link.index.names()).result()) if name is not None]
        for _ in range(2):  # as the collector does
            link.call(link.index.remove(names)).result()
        assert link.call(link.index.usage()).result() == IndexUsage(0, 0)


def test_entries_without_an_object_are_removed(opened: Opened, tmp_path: Path) -> None:
    blobs, tokens = opened("03" * 32), path_of(400, seed=301)
    stored(blobs, tokens)
    for file in (tmp_path / "store").rglob("*.256.1.0.*"):
        file.unlink()
    assert blobs.medium.link.call(collector(blobs, 1 << 30).rebuild()).result() == 0
    path = found(blobs, tokens)
    assert path is not None
    assert len(path.items) == 2


def test_namespaces_whose_names_the_store_has_lost_are_named_again(opened: Opened, tmp_path: Path) -> None:
    """Else nobody could find whose blobs they are, once the index has forgotten it too."""
    blobs = opened("06" * 32)
    stored(blobs, path_of(400, seed=304), namespace="mine/")
    (name,) = (tmp_path / "store").rglob("name")
    name.unlink()
    blobs.medium.link.call(collector(blobs, 1 << 30).rebuild()).result()
    assert name.read_text() == "mine/"


def test_names_of_namespaces_go_some_time_after_their_last_blob(opened: Opened, tmp_path: Path) -> None:
    """Clients may name a new salt with every request."""
    blobs = opened("07" * 32)
    link = blobs.medium.link
    stored(blobs, path_of(400, seed=305), namespace="salted/")
    (name,) = (tmp_path / "store").rglob("name")
    link.call(collector(blobs, 0).rebuild()).result()
    assert name.exists(), "it has blobs"
    link.call(collector(blobs, 0).prune(0)).result()
    link.call(collector(blobs, 0).rebuild()).result()
    assert name.exists(), "it was used just now"
    link.index.max_age_s = 0.0
    link.call(collector(blobs, 0).rebuild()).result()
    assert not name.exists()
    assert link.call(link.index.namespaces()).result() == []
    stored(opened("07" * 32), path_of(400, seed=306), namespace="salted/")
    assert name.read_text() == "salted/"


def test_one_machine_collects_at_a_time(opened: Opened) -> None:
    one, other = opened(FINGERPRINT), opened(FINGERPRINT)
    key = one.medium.link.index.keys.lease("collector")
    assert one.medium.link.call(one.medium.link.index.take_lease(key, 60_000)).result()
    assert not other.medium.link.call(other.medium.link.index.take_lease(key, 60_000)).result()
    assert one.medium.link.call(one.medium.link.index.renew_lease(key, 1)).result()
    assert until(lambda: other.medium.link.call(other.medium.link.index.take_lease(key, 1)).result()), "leases end"


def test_what_is_still_used_here_is_stored_again(opened: Opened) -> None:
    blobs, tokens = opened("04" * 32), path_of(400, seed=302)
    records = stored(blobs, tokens)
    blobs.medium.link.call(collector(blobs, 0).collect()).result()
    assert found(blobs, tokens) is None
    blobs.promote(records, Rank(Worth.END, 2.0))  # as the next turn of the conversation does
    assert sorted(record.name for record in told(blobs, 3)) == sorted(record.name for record in records)
    stored(blobs, tokens)
    assert found(blobs, tokens) is not None
