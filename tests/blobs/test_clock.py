"""The clock on the wall is set, by years: what was used last is still known, and nothing stays because of it."""

import time
from pathlib import Path

import pytest

from leftoff.blobs import clock
from leftoff.disk.tools.models import models
from tests.disk.stores import page, path_of, recalled, store_in, written

YEARS = 10 * 365 * 86_400.0
TOKENS = path_of(400)


def ages(root: Path) -> dict[str, float]:
    with store_in(root) as store:
        return {name: age_s for name, (_, _, age_s) in recalled(store).items()}


@pytest.mark.parametrize("jump", [YEARS, -YEARS])
def test_a_jump_while_serving_does_not_change_the_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    real = time.time
    with store_in(tmp_path) as store:
        before, after = written(store, [page(0, 100), page(100, 200)], TOKENS)
        store.record_hits([before])
        monkeypatch.setattr(time, "time", lambda: real() + jump)
        (late,) = written(store, [page(200, 300)], TOKENS)
        store.record_hits([after])
        monkeypatch.setattr(time, "time", real)
        store.record_hits([late])
    found = ages(tmp_path)
    assert found[before.name] > found[after.name] > found[late.name]
    assert max(found.values()) < YEARS / 2


def test_what_was_used_in_the_future_is_no_younger_than_today(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = clock.now
    monkeypatch.setattr(clock, "now", lambda: real() + YEARS)
    with store_in(tmp_path) as store:
        future, other = written(store, [page(0, 100), page(100, 200)], TOKENS)
    monkeypatch.setattr(clock, "now", real)
    assert ages(tmp_path) == {future.name: pytest.approx(0, abs=60), other.name: pytest.approx(0, abs=60)}
    monkeypatch.setattr(clock, "now", lambda: real() + 5000)
    with store_in(tmp_path) as store:
        records = {name: item for name, (_, item, _) in recalled(store).items()}
        store.record_hits([records[other.name].data])  # type: ignore[list-item]
    found = ages(tmp_path)
    assert found[future.name] > found[other.name], "it has grown old since the clock is right"
    assert found[future.name] == pytest.approx(5000, abs=60)


def test_a_model_of_the_future_is_no_younger_than_today(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = clock.now
    monkeypatch.setattr(clock, "now", lambda: real() + YEARS)
    with store_in(tmp_path) as store:
        written(store, [page(0, 100)], TOKENS)
    monkeypatch.setattr(clock, "now", real)
    (usage,) = models(tmp_path)
    assert usage.last_used <= clock.now()


def test_the_clock_agrees_with_the_wall_and_goes_forward() -> None:
    moments = [clock.now() for _ in range(1000)]
    assert moments == sorted(moments)
    assert moments[0] == pytest.approx(time.time(), abs=600)
