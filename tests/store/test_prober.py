"""What is asked now and then tells that a part is back, and how fast the store is."""

from contextlib import closing
from pathlib import Path

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


def test_one_slow_answer_is_doubted_and_two_are_believed(index: Redis, tmp_path: Path) -> None:
    measured = []
    with closing(Link(f"file://{tmp_path}/store", index.url, "fingerprint")) as link:
        prober = Prober(link)
        for call_ms in (10.0, 10.0, 250.0, 10.0, 250.0, 250.0):
            prober.saw(call_ms, 1.0)
            measured.append(prober.call_ms)
    assert measured[:5] == [10.0] * 5, "it may have waited for a wire that was cut"
    assert measured[5] == 130.0
