"""Rows for training: new ones first, all of them in every round, and real text among the made-up from the start."""

import numpy as np
import pytest

pytest.importorskip("tokenizers", reason="training needs tokenizers: pip install 'leftoff[training]'")

from training.corpus import Preparation, Rows, jobs
from training.supply import Supply


def rows(*numbers: int) -> Rows:
    tokens = np.array([[number] * 4 for number in numbers], np.uint16)
    return Rows(tokens, (tokens % 3).astype(np.uint8))


def drawn(supply: Supply, count: int) -> list[int]:
    batch = supply.batch(count)
    assert (batch.weights == batch.tokens % 3).all()
    return [int(row[0]) for row in batch.tokens]


def test_every_row_comes_once_in_a_round_and_rounds_differ() -> None:
    supply = Supply(seed=1)
    supply.add(rows(*range(40)))
    first, second = drawn(supply, 40), drawn(supply, 40)
    assert sorted(first) == sorted(second) == list(range(40))
    assert first != second


def test_rows_that_were_never_seen_go_first() -> None:
    supply = Supply(seed=1)
    supply.add(rows(1, 2, 3))
    drawn(supply, 3)
    supply.add(rows(4, 5))
    assert sorted(drawn(supply, 2)) == [4, 5]
    assert sorted(drawn(supply, 5)) == [1, 2, 3, 4, 5]
    assert supply.num_rows == 5


def test_real_text_comes_all_along_and_again_for_more_documents() -> None:
    work = jobs(513, seed=1, num_generated=700_000)
    is_real = [bool(job.real) for job in work]
    half = len(work) // 2
    assert 0.8 < sum(is_real[:half]) / sum(is_real[half:]) < 1.25
    assert sum(is_real) == pytest.approx(2 * sum(bool(job.real) for job in jobs(513, 1, 350_000)), abs=1)


def test_prepared_rows_come_as_they_are_ready() -> None:
    with Preparation(jobs(513, seed=1, num_generated=2000, real_share=0.0), num_processes=1) as preparation:
        made = [preparation.wait()]
        while len(made) < 2:
            made += preparation.ready()
        assert list(preparation.ready()) == []
    assert all(part.tokens.shape[1] == 513 and len(part.tokens) > 100 for part in made)
