"""What is asked now and then tells that a part is back, and how fast the store is."""

from contextlib import closing
from pathlib import Path

import pytest
from redis import Redis as Client

from leftoff.store.link import Link
from leftoff.store.prober import Prober
from tests.patience import PATIENCE_S
from tests.store.parts import Redis


def test_a_part_that_answers_is_back(index: Redis, tmp_path: Path) -> None:
    with closing(Link(f"file://{tmp_path}/store", index.url, "fingerprint")) as link:
        prober = Prober(link)
        for _ in range(2):  # the first puts what the second fetches
            link.reads.failed(TimeoutError())
            link.call(prober.measure_store()).result(PATIENCE_S)
            assert not link.reads.is_failing
    assert prober.call_ms is not None
    assert prober.bytes_per_ms is not None


def test_an_index_that_can_only_be_read_is_not_back(index: Redis, tmp_path: Path) -> None:
    """Else it would be back every second, and fail again with the next heartbeat."""
    was_failing, client = [], Client.from_url(index.url)
    with closing(client), closing(Link(f"file://{tmp_path}/store", index.url, "fingerprint")) as link:
        link.index_breaker.failed(TimeoutError())
        for most_bytes in (1, 0):  # 1 is full, 0 has no end
            client.config_set("maxmemory", most_bytes)
            link.call(Prober(link).ask_index()).result(PATIENCE_S)
            was_failing.append(link.index_breaker.is_failing)
    assert was_failing == [True, False]


def test_a_store_that_has_lost_its_objects_is_compared_with_the_index(index: Redis, tmp_path: Path) -> None:
    with closing(Link(f"file://{tmp_path}/store", index.url, "fingerprint")) as link:
        prober, process = Prober(link), link.index.keys.process
        for _ in range(2):
            link.call(prober.measure_store()).result(PATIENCE_S)
        link.call(_told(link, process)).result()
        link.call(prober.measure_store()).result(PATIENCE_S)
        assert link.call(_kept(link, process)).result(), "nothing is amiss"
        (tmp_path / "store" / "probe").unlink()
        link.call(Prober(link).measure_store()).result(PATIENCE_S)  # perhaps that of a server which has just started
        assert not link.call(_kept(link, process)).result(), "the collector lists the objects next"


async def _told(link: Link, key: bytes) -> None:
    await link.index.redis.set(key, b"1")


async def _kept(link: Link, key: bytes) -> bool:
    return bool(await link.index.redis.exists(key))


def test_one_slow_answer_is_doubted_and_two_are_believed(index: Redis, tmp_path: Path) -> None:
    measured = []
    with closing(Link(f"file://{tmp_path}/store", index.url, "fingerprint")) as link:
        prober = Prober(link)
        for call_ms in (10.0, 10.0, 250.0, 10.0, 250.0, 250.0):
            prober.saw(call_ms, 1.0)
            measured.append(prober.call_ms)
    assert measured[:5] == [10.0] * 5, "it may have waited for a wire that was cut"
    assert measured[5] == 130.0


def test_a_probe_that_cannot_be_put_says_nothing_of_writing(
    index: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another machine may put it, and then nothing here would show that writing works again."""

    async def full(*_: object) -> None:
        raise OSError("No space left on device")

    with closing(Link(f"file://{tmp_path}/store", index.url, "fingerprint")) as link:
        monkeypatch.setattr(link.objects, "put", full)
        link.call(Prober(link).measure_store()).result(PATIENCE_S)
        assert not link.writes.is_failing
