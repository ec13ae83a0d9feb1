"""A state with pictures in it is restored to the bit, for every kind of memory, and a wrong picture would show."""

from collections.abc import Iterator

import numpy as np
import pytest

from leftoff.engine.engine import LlamaEngine
from leftoff.engine.errors import InputError
from leftoff.engine.memory import llama_memory
from leftoff.engine.memory.base import MemoryKind, Share, Snapshot, Span
from leftoff.engine.memory.paged import PagedMemory
from leftoff.picture_tokens import Pictures, pictures_in
from tests.engine.scenario import Saved, prompt
from tests.engine.vision.pictures import PAIRS, Opened, Piece, opened, picture, read_pieces, tokens_of


@pytest.fixture(scope="module", params=PAIRS, ids="-".join)
def both(request: pytest.FixtureRequest) -> Iterator[Opened]:
    with opened(*request.param) as pair:
        yield pair


@pytest.fixture(autouse=True)
def _empty(both: Opened) -> None:
    both[0].memory.clear()


def text(engine: LlamaEngine, num_tokens: int, seed: int) -> list[Piece]:
    return [(prompt(engine, num_tokens, seed), None)]


def save(engine: LlamaEngine, seq: int, pictures: Pictures) -> Saved:
    """Pages end at the borders of pictures, and in the middle of text."""
    memory, borders = engine.memory, {0, 7, engine.memory.length(seq)}
    borders |= {border for span in pictures for border in (span.start, span.end)}
    spans: list[Span] = [*zip(sorted(borders), sorted(borders)[1:], strict=False)]
    pages = tuple(memory.save_pages(seq, spans)) if memory.kind.has_pages else ()
    snapshot: Snapshot | None = memory.save_snapshot(seq) if memory.kind.has_snapshots else None
    return Saved(memory.length(seq), pages, snapshot)


def load(engine: LlamaEngine, seq: int, saved: Saved, pictures: Pictures, share: Share | None = None) -> None:
    pages = [page.whole() for page in saved.pages if share is None or page.start >= share.length]
    engine.memory.restore(seq, saved.length, share=share, pages=pages, snapshot=saved.snapshot, pictures=pictures)


def test_a_prompt_with_pictures_goes_on_bit_identically(both: Opened) -> None:
    engine, projector = both
    head = [*text(engine, 21, 1), *picture(projector, 1), *text(engine, 9, 2), *picture(projector, 2, 90, 140)]
    tail = [*text(engine, 30, 3), *picture(projector, 3), *text(engine, 5, 4)]
    head, tail = head[:-1], [head[-1], *tail]  # what is saved ends where a picture does
    pictures = pictures_in(tokens_of(head))

    read_pieces(engine, 0, head)
    expected = read_pieces(engine, 0, tail)
    expected_bytes = save(engine, 0, pictures_in(tokens_of(head + tail))).content
    engine.memory.clear()
    read_pieces(engine, 0, head)
    saved = save(engine, 0, pictures)
    gone_on = read_pieces(engine, 0, tail)
    engine.memory.clear()
    load(engine, 1, saved, pictures)
    assert save(engine, 1, pictures).content == saved.content
    after_load = read_pieces(engine, 1, tail)
    after_bytes = save(engine, 1, pictures_in(tokens_of(head + tail))).content

    np.testing.assert_array_equal(gone_on, expected)
    np.testing.assert_array_equal(after_load, expected)
    assert after_bytes == expected_bytes

    # in place, over a tail that is taken back; and shared with another sequence up to a picture's end
    if engine.memory.kind.has_pages:
        load(engine, 1, saved, pictures, Share(1, pictures[0].end))
        np.testing.assert_array_equal(read_pieces(engine, 1, tail), expected)
        load(engine, 2, saved, pictures, Share(1, pictures[0].end))
        assert save(engine, 2, pictures).content == saved.content


def test_another_picture_or_place_shows(both: Opened) -> None:
    engine, projector = both
    before, after = text(engine, 21, 1), text(engine, 9, 2)
    expected = read_pieces(engine, 0, before + picture(projector, 1) + after)
    engine.memory.clear()
    other = read_pieces(engine, 0, before + picture(projector, 2) + after)
    engine.memory.clear()
    again = read_pieces(engine, 0, before + picture(projector, 1) + after)
    np.testing.assert_array_equal(again, expected)
    assert not np.array_equal(other, expected)


def test_no_restore_ends_within_a_picture(both: Opened) -> None:
    engine, projector = both
    pieces = [*text(engine, 21, 1), *picture(projector, 1), *text(engine, 3, 2)]
    pictures = pictures_in(tokens_of(pieces))
    read_pieces(engine, 0, pieces)
    inside = pictures[0].start + 1
    assert not engine.memory.can_cut(0, inside)
    if engine.memory.kind is MemoryKind.ATTENTION:
        with pytest.raises(InputError, match="picture"):
            engine.memory.restore(1, inside, share=Share(0, inside), pictures=pictures)


@pytest.mark.parametrize("both", [PAIRS[0]], indirect=True, ids=["mrope"])
def test_without_the_map_of_positions_it_would_show(both: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, projector = both
    head, tail = [*text(engine, 21, 1), *picture(projector, 1)], text(engine, 9, 2)
    read_pieces(engine, 0, head)
    expected = read_pieces(engine, 0, tail)
    engine.memory.clear()
    read_pieces(engine, 0, head)
    monkeypatch.setattr(llama_memory, "lag_at", lambda *_: 0)
    assert not np.array_equal(read_pieces(engine, 0, tail), expected)


def test_a_picture_around_a_hole_is_moved_down_whole(both: Opened) -> None:
    """Cells of another sequence lie between those of the picture, and are freed: the next decode closes the hole."""
    engine, projector = both
    memory = engine.memory
    if not isinstance(memory, PagedMemory):
        pytest.skip("it has no pages")
    pieces = [*text(engine, 21, 1), *picture(projector, 1)]
    number = next(number for number, (_, embeddings) in enumerate(pieces) if embeddings is not None)
    before, head, tail = pieces[:number], pieces[: number + 1], [*pieces[number + 1 :], *text(engine, 9, 2)]
    pictures = pictures_in(tokens_of(head))
    read_pieces(engine, 0, head)
    saved = save(engine, 0, pictures)
    expected = read_pieces(engine, 0, tail)
    memory.clear()

    read_pieces(engine, 0, before)
    for seq in (1, 2):
        read_pieces(engine, seq, text(engine, 3, seq))
    memory.drop(1)
    load(engine, 0, saved, pictures, Share(0, pictures[0].start))
    memory.drop(2)
    misplaced = memory._cells.first_misplaced(0)
    assert misplaced is not None
    assert pictures[0].start < misplaced < pictures[0].end
    np.testing.assert_array_equal(read_pieces(engine, 0, tail), expected)
    assert memory._cells.is_orderly
