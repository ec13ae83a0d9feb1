"""Token numbers tell where a picture lies, which one it is, and how many positions it takes."""

import numpy as np
import pytest

from leftoff.picture_tokens import (
    PictureSpan,
    cuts_picture,
    lag_at,
    marked,
    picture_tokens,
    pictures_in,
    shown_text,
    uncut,
    unmarked,
    whole,
)

TEXT = np.array([5, 6, 7], np.int32)
ONE, OTHER = picture_tokens(b"one", 12, 4), picture_tokens(b"other", 5, 5)
# [0 · text · 3)[3 ··· one ··· 15)[15 · other · 20)[20 · text · 23)
TOKENS = np.concatenate([TEXT, ONE, OTHER, TEXT])
SPANS = (PictureSpan(3, 15, 4), PictureSpan(15, 20, 5))


def test_pictures_are_found_in_the_tokens_alone() -> None:
    assert pictures_in(TOKENS) == SPANS
    assert pictures_in(TEXT) == ()
    assert pictures_in(TOKENS[:0]) == ()
    assert pictures_in(np.concatenate([ONE, ONE])) == (PictureSpan(0, 12, 4), PictureSpan(12, 24, 4))


def test_no_vocabulary_has_them_and_two_pictures_differ_from_their_first_token_on() -> None:
    assert (ONE < 0).all()
    assert (OTHER < 0).all()
    assert ONE[0] != OTHER[0]
    np.testing.assert_array_equal(picture_tokens(b"one", 12, 4), ONE)


def test_what_would_cut_a_picture_is_moved_to_its_borders() -> None:
    inside = {*range(4, 15), *range(16, 20)}
    assert {at for at in range(TOKENS.size + 1) if cuts_picture(TOKENS, at)} == inside
    assert [uncut(SPANS, at) for at in (3, 4, 14, 15, 17, 20)] == [3, 3, 3, 15, 15, 20]
    assert [whole(TOKENS, at) for at in (3, 4, 14, 15, 17, 20, 23)] == [3, 15, 15, 15, 20, 20, 23]
    assert whole(TOKENS[:20], 17) == 20


def test_positions_lag_behind_tokens_after_a_picture_that_takes_fewer() -> None:
    assert [lag_at(SPANS, at) for at in (3, 15, 20, 23)] == [0, 8, 8, 8]


def test_text_that_a_picture_keeps_from_a_whole_chunk_has_tokens_of_its_own() -> None:
    text = np.arange(100, dtype=np.int32)
    tokens = np.concatenate([text, ONE, TEXT, OTHER, TEXT])
    spans = pictures_in(tokens)
    changed = marked(tokens, spans, 64)
    np.testing.assert_array_equal(changed[:64], tokens[:64])
    assert (changed[64:100] != tokens[64:100]).all()
    assert (changed[112:115] != tokens[112:115]).all()
    np.testing.assert_array_equal(changed[120:], tokens[120:])
    np.testing.assert_array_equal(unmarked(changed), tokens)
    assert pictures_in(changed) == spans
    sooner = np.concatenate([text[:99], ONE])
    assert marked(sooner, pictures_in(sooner), 64)[70] != changed[70], "another chunk: rounded in another way"
    on_grid = np.concatenate([text[:64], ONE])
    np.testing.assert_array_equal(marked(on_grid, pictures_in(on_grid), 64), on_grid)


def test_people_are_shown_a_picture_once() -> None:
    assert b"".join(map(shown_text, ONE.tolist())) == b"[image]"


@pytest.mark.parametrize("num_tokens", [1, 2, 300])
def test_a_run_is_found_whatever_its_length(num_tokens: int) -> None:
    run = picture_tokens(b"any", num_tokens, 1)
    assert pictures_in(run) == (PictureSpan(0, num_tokens, 1),)
