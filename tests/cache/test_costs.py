"""Rates are measured, and a disk's from its first fetch on."""

import pytest

from leftoff.cache.costs import Costs

_MB = 1_000_000


def test_the_first_fetch_replaces_every_guess() -> None:
    costs = Costs()
    costs.expect_disk(2 * _MB)
    assert costs.disk_bytes_per_ms == 2 * _MB
    costs.saw_disk(10 * _MB, 1000.0)
    assert costs.disk_bytes_per_ms == pytest.approx(10_000)
    costs.expect_disk(2 * _MB)
    assert costs.disk_bytes_per_ms == pytest.approx(10_000), "what was measured counts more than what is expected"


def test_one_fetch_out_of_the_file_cache_does_not_hide_a_slow_disk() -> None:
    costs = Costs()
    costs.saw_disk(10 * _MB, 1000.0)
    costs.saw_disk(10 * _MB, 1.0)
    assert costs.disk_bytes_per_ms < 13_000
    costs.saw_disk(10 * _MB, 1000.0)
    assert costs.disk_bytes_per_ms < 12_000


def test_small_fetches_say_nothing_about_the_rate() -> None:
    costs = Costs()
    costs.saw_disk(1000, 100.0)
    assert not costs.disk_is_measured
