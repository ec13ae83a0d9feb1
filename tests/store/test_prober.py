"""What is asked now and then tells that a part is back, and how fast the store is."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from leftoff.store.link import Link
from leftoff.store.prober import Prober
from tests.patience import PATIENCE_S
from tests.store.parts import S3, Redis, s3, s3_environment, wire


@pytest.fixture
def bucket() -> Iterator[S3]:
    with s3() as part:
        yield part


def test_a_part_that_answers_is_back(index: Redis, tmp_path: Path) -> None:
    with closing(Link(f"file://{tmp_path}/store", index.url, "fingerprint")) as link:
        prober = Prober(link)
        for _ in range(2):  # the first puts what the second fetches
            link.reads.failed(TimeoutError())
            link.call(prober.measure_store()).result(PATIENCE_S)
            assert not link.reads.is_failing
    assert prober.call_ms is not None
    assert prober.bytes_per_ms is not None


def test_one_slow_answer_is_doubted_and_two_are_believed(index: Redis, bucket: S3) -> None:
    measured = []
    with (
        wire(bucket.port) as between,
        s3_environment(between.port),
        closing(Link(bucket.url, index.url, "fingerprint")) as link,
    ):
        prober = Prober(link)
        for delay_s in (0.0, 0.0, 0.25, 0.0, 0.25, 0.25):
            between.delay_s = delay_s
            link.call(prober.measure_store()).result(PATIENCE_S)
            measured.append(prober.call_ms or 0.0)
    _, usual, once, later, again, twice = measured
    assert 0 < usual == once, "it may have waited for a wire that was cut"
    assert later == again
    assert twice > again + 50
