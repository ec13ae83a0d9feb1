"""Rates are measured, a disk's from its first fetch on, and what neighbours cost as soon as lengths have varied."""

import pytest

from leftoff.cache.costs import Costs, TierCosts

_MB = 1_000_000


def test_the_first_fetch_replaces_every_guess() -> None:
    costs = TierCosts()
    costs.expect(2 * _MB)
    assert costs.bytes_per_ms == 2 * _MB
    costs.saw_fetch(10 * _MB, 1000.0)
    assert costs.bytes_per_ms == pytest.approx(10_000)
    costs.expect(2 * _MB)
    assert costs.bytes_per_ms == pytest.approx(10_000), "what was measured counts more than what is expected"


def test_one_fetch_out_of_the_file_cache_does_not_hide_a_slow_disk() -> None:
    costs = TierCosts()
    costs.saw_fetch(10 * _MB, 1000.0)
    costs.saw_fetch(10 * _MB, 1.0)
    assert costs.bytes_per_ms < 13_000
    costs.saw_fetch(10 * _MB, 1000.0)
    assert costs.bytes_per_ms < 12_000


def test_small_fetches_say_nothing_about_the_rate() -> None:
    costs = TierCosts()
    costs.saw_fetch(1000, 100.0)
    assert not costs.is_measured


def test_a_medium_that_is_probed_is_no_slower_than_its_probe() -> None:
    costs = TierCosts(1e5, 20.0, calls_at_once=16)
    costs.expect(2e5, 5.0)
    assert costs.fetch_ms(2 * _MB, 33) == pytest.approx(3 * 5.0 + 10)
    costs.saw_fetch(2 * _MB, 1005.0)
    slow = costs.bytes_per_ms
    assert slow == pytest.approx(2 * _MB / (0.2 * 1000 + 0.8 * 10)), "without the call"
    costs.expect(1e3, 5.0)
    assert costs.bytes_per_ms == slow
    costs.expect(2e5, 5.0)
    assert costs.bytes_per_ms == 2e5, "else one slow minute would make fetching seem too slow for ever"


def test_small_chunks_say_nothing_about_the_rate_of_large_ones() -> None:
    costs = Costs(prefill_tokens_per_ms=8.0, rate_tokens=512)
    for _ in range(100):
        costs.saw_prefill(64, 20.0)
    assert costs.prefill_tokens_per_ms == 8.0
    costs.saw_prefill(512, 100.0)
    assert costs.prefill_tokens_per_ms < 8.0


def test_the_time_of_a_whole_prompt_is_not_that_of_its_last_tokens() -> None:
    costs = Costs(prefill_tokens_per_ms=1.0, rate_tokens=32)
    assert costs.cold_ms(1000) == costs.prefill_ms(1000)
    took_ms = [512 * (1.0 + 1e-4 * num_cells) for num_cells in range(256, 32_000, 512)]
    for number, ms in enumerate(took_ms):
        costs.saw_prefill(512, ms, 512 * number + 256)
    for _ in range(20):
        costs.saw_prefill(17, 17 * 6.0, 32_000)
    assert costs.cold_ms(512 * len(took_ms)) == pytest.approx(sum(took_ms), rel=0.01)
    assert costs.prefill_ms(512 * len(took_ms)) > 2 * sum(took_ms)


def test_what_idle_neighbours_cost_is_learned_from_steps_beside_few_and_many_cells() -> None:
    costs = Costs(reply_tokens=100.0)
    for num_cells in (100, 200, 33_000, 33_100, 200):
        costs.saw_step(6.0 + 1e-5 * num_cells, 1, num_cells)
        costs.saw_step(20.0, 8, num_cells)  # of many replies at once: not the same line
    assert costs.neighbour_ms(32_768, 512) == pytest.approx(100 * 32_768 * 1e-5), "the prefill's part is not known yet"
    for num_cells in (0, 512, 16_000, 32_000):
        costs.saw_prefill(512, 512 * (0.12 + 5e-7 * num_cells), num_cells)
    assert costs.neighbour_ms(32_768, 0) == pytest.approx(100 * 32_768 * 1e-5)
    assert costs.neighbour_ms(32_768, 64) == pytest.approx(100 * 32_768 * 1e-5 + 64 * 32_768 * 5e-7)


def test_replies_that_become_shorter_are_noticed() -> None:
    costs = Costs()
    for _ in range(30):
        costs.saw_reply(16)
    assert costs.reply_tokens < 20


def test_small_saves_do_not_hide_how_fast_large_ones_are() -> None:
    costs = Costs(save_bytes_per_ms=20 * _MB, large_save_bytes=150 * _MB)  # as measured at load
    for _ in range(50):
        costs.saw_save(_MB, 9.0)
        costs.saw_save(12 * _MB, 9.0)
    assert costs.save_ms(1000 * _MB) == pytest.approx(59.0, rel=0.2)
    for _ in range(20):
        costs.saw_save(1000 * _MB, 109.0)
    assert costs.save_ms(1000 * _MB) == pytest.approx(109.0, rel=0.2)
    assert costs.save_ms(_MB) == pytest.approx(9.0, rel=0.2)


def test_short_prompts_do_not_hide_what_neighbours_cost_long_ones() -> None:
    costs = Costs(rate_tokens=512)
    for _ in range(200):
        costs.saw_prefill(512, 40.0, 600)  # eight prompts of 64 tokens: slower by the token than a long one
    for num_cells in range(8192, 32769, 8192):
        costs.saw_prefill(8192, 8192 * (0.05 + 1e-6 * num_cells), num_cells)
    assert costs.token_by_cells.slope == pytest.approx(1e-6, rel=0.1)
