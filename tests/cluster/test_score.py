"""The time to the first token is what the cache's own costs say, and the cheaper replica wins."""

import pytest

from leftoff.cluster.replica import ReplicaCosts
from leftoff.cluster.score import Estimate, FoundPoint, beside, estimate

MB = 1_000_000


def costs() -> ReplicaCosts:
    return ReplicaCosts(
        prefill_tokens_per_ms=1.0,
        load_bytes_per_ms=10 * MB,
        call_ms=0.0,
        disk_bytes_per_ms=2 * MB,
        disk_call_ms=1.0,
        store_bytes_per_ms=1 * MB,
        store_call_ms=20.0,
    )


def test_an_unknown_prompt_is_read_after_the_queue() -> None:
    found = estimate(1000, [], costs(), queue_ms=50)
    assert (found.resume, found.first_token_ms) == (0, 1050)


def test_a_state_in_the_engine_costs_nothing_but_the_rest() -> None:
    assert estimate(1000, [FoundPoint(900)], costs()).first_token_ms == 100


def test_loading_is_work_and_fetching_hides_behind_the_queue() -> None:
    point = FoundPoint(900, load_bytes=100 * MB, store_bytes=100 * MB, store_blobs=1)
    alone, behind = (estimate(1000, [point], costs(), queue_ms) for queue_ms in (0.0, 500.0))
    assert alone.first_token_ms == pytest.approx(120 + 10 + 100)
    assert behind.first_token_ms == pytest.approx(500 + 10 + 100)
    assert alone.work_ms == behind.work_ms == pytest.approx(110)


def test_a_nearer_point_is_taken_where_fetching_the_deeper_one_takes_longer() -> None:
    near = FoundPoint(800, load_bytes=10 * MB)
    far = FoundPoint(900, load_bytes=11 * MB, store_bytes=300 * MB, store_blobs=1)
    assert estimate(1000, [far, near], costs()).resume == 800
    assert estimate(1000, [far, near], costs(), queue_ms=400).resume == 900, "by then it has arrived"


def test_reading_a_little_is_cheaper_than_fetching() -> None:
    assert estimate(30, [FoundPoint(20, MB, store_bytes=MB, store_blobs=1)], costs()).resume == 0


def test_what_a_replica_has_is_not_fetched_from_the_store() -> None:
    stored = [
        FoundPoint(500, 5 * MB, store_bytes=5 * MB, store_blobs=2),
        FoundPoint(1000, 10 * MB, store_bytes=10 * MB),
    ]
    assert beside([FoundPoint(750, 7 * MB)], stored) == [FoundPoint(1000, 10 * MB, store_bytes=2_500_000)]
    assert beside([], stored) == stored


def test_a_price_counts_the_work_that_others_wait_for() -> None:
    reads = Estimate(queue_ms=0, fetch_ms=0, load_ms=0, read_ms=1000)
    waits = Estimate(queue_ms=1100, fetch_ms=0, load_ms=10, read_ms=10)
    assert reads.first_token_ms < waits.first_token_ms
    assert reads.price_ms > waits.price_ms
