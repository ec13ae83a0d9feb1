"""A causal picture that is larger than a batch is read in parts, and is one picture all the same."""

from dataclasses import replace

import numpy as np
import pytest

from leftoff.picture_tokens import pictures_in
from tests.engine.scenario import prompt
from tests.engine.vision.pictures import PAIRS, SETTINGS, Piece, opened, picture, read_pieces, tokens_of
from tests.engine.vision.test_vision_exactness import load, save

SMALLEST_BATCH = 32
SIDES = 400, 300
ROUNDING = 0.02  # parts are added up in another order than a whole
LARGE = [pair for pair in PAIRS if pair[1] in ("qwen3vl_merger", "lfm2")]  # others cut them into small ones


@pytest.mark.parametrize(("architecture", "kind"), LARGE)
def test_a_picture_that_is_larger_than_a_batch_is_read_in_parts(architecture: str, kind: str) -> None:
    logits = []
    for batch_tokens in (512, SMALLEST_BATCH):
        settings = replace(SETTINGS, grid=None, batch_tokens=batch_tokens, micro_batch_tokens=batch_tokens)
        with opened(architecture, kind, settings) as (engine, projector):
            after: list[Piece] = [(prompt(engine, 3, 2), None)]
            pieces = [(prompt(engine, 3, 1), None), *picture(projector, 1, *SIDES), *after]
            largest = max(len(shown.rows) for _, shown in pieces if shown is not None and shown.is_causal)
            assert (largest > engine.most_picture_tokens(is_causal=True)) is (batch_tokens == SMALLEST_BATCH)
            logits.append(read_pieces(engine, 0, pieces))
            pictures = pictures_in(tokens_of(pieces))
            load(engine, 1, save(engine, 0, pictures), pictures)
            np.testing.assert_array_equal(read_pieces(engine, 1, after), read_pieces(engine, 0, after))
            other = read_pieces(engine, 2, [*pieces[:1], *picture(projector, 2, *SIDES), *after])
    np.testing.assert_allclose(logits[1], logits[0], atol=ROUNDING)
    assert np.abs(other - logits[0]).max() > 5 * ROUNDING, "another picture would be seen"
