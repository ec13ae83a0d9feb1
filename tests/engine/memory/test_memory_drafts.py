"""Drafts: a sequence that has taken wrong tokens back is, to the bit, one that never had them."""

import numpy as np
import pytest

from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.errors import InputError
from leftoff.engine.memory.base import MemoryKind
from leftoff.types import Logits, Tokens
from tests.engine.scenario import prompt, read, save
from tests.factory import ARCHITECTURES

LENGTH = 141  # past the windows, and the longest compressed row
SURE, DRAFTED = 2, 4

pytestmark = pytest.mark.parametrize("engine", ARCHITECTURES, indirect=True)


@pytest.fixture(autouse=True)
def _takes_drafts(engine: LlamaEngine) -> None:
    if not engine.memory.can_draft:
        with pytest.raises(InputError, match="takes no drafts"):
            engine.decode([Work(0, prompt(engine, 3), num_drafted=1)])
        pytest.skip(f"{engine.memory.kind.value} memory takes no drafts")


def drafted(engine: LlamaEngine, *, offset: int) -> tuple[Tokens, Work]:
    """A prompt, and what is decoded after it: tokens that are sure, and a draft that differs by `offset`."""
    tokens = prompt(engine, LENGTH + SURE + DRAFTED)
    following = tokens[LENGTH:].copy()
    following[SURE:] = (following[SURE:] + offset) % engine.model.vocabulary.size
    return tokens, Work(0, following, num_drafted=DRAFTED)


def go_on(engine: LlamaEngine, tokens: Tokens, num_held: int) -> Logits:
    """Decodes the two tokens that are sure, as far as they were taken back too, and two more."""
    return read(engine, 0, np.concatenate([tokens[LENGTH + num_held : LENGTH + SURE], tokens[:2]]))


def test_what_was_taken_back_leaves_no_trace(engine: LlamaEngine) -> None:
    results = []
    for offset in (3, 11):
        tokens, work = drafted(engine, offset=offset)
        before = read(engine, 0, tokens[:LENGTH])
        assert before is not None
        saved = save(engine, 0)
        engine.decode([work])
        num_held = engine.settle(work, SURE)
        assert num_held == (0 if engine.memory.has_state else SURE)
        assert engine.memory.length(0) == LENGTH + num_held
        after = save(engine, 0)
        if engine.memory.has_state:
            assert saved.content == after.content, "the state is that of before the batch"
        results.append((after, go_on(engine, tokens, num_held)))
        engine.memory.drop(0)
    (state, logits), (other_state, other_logits) = results
    assert state.content == other_state.content
    np.testing.assert_array_equal(logits, other_logits)


def test_a_draft_that_stays_shows(engine: LlamaEngine) -> None:
    """The control: wrong tokens that are not taken back change what follows."""
    logits = []
    for num_kept in (SURE, SURE + DRAFTED):
        tokens, work = drafted(engine, offset=3)
        read(engine, 0, tokens[:LENGTH])
        engine.decode([work])
        num_held = engine.settle(work, num_kept)
        logits.append(go_on(engine, tokens, min(num_held, SURE)))
        engine.memory.drop(0)
    without, with_draft = logits
    assert not np.array_equal(without, with_draft)


def test_a_draft_that_is_right_stays(engine: LlamaEngine) -> None:
    tokens, work = drafted(engine, offset=0)
    read(engine, 0, tokens[:LENGTH])
    engine.decode([work])
    drafted_state = save(engine, 0) if engine.settle(work, work.tokens.size) == work.tokens.size else None
    assert drafted_state is not None
    engine.memory.drop(0)
    read(engine, 0, tokens[:LENGTH])
    read(engine, 0, tokens[LENGTH:])
    assert drafted_state.content == save(engine, 0).content


def test_every_row_has_the_logits_of_its_prefix(engine: LlamaEngine) -> None:
    tokens, work = drafted(engine, offset=0)
    read(engine, 0, tokens[:LENGTH])
    (last,) = engine.decode([work])
    rows = [engine.logits(last - DRAFTED + index).copy() for index in range(DRAFTED + 1)]
    engine.settle(work, SURE)
    with pytest.raises(InputError, match="no logits"):
        engine.logits(last - DRAFTED - 1)
    engine.memory.drop(0)
    read(engine, 0, tokens[:LENGTH])
    (last,) = engine.decode([Work(0, work.tokens, all_logits=True)])
    for index, row in enumerate(rows):
        np.testing.assert_array_equal(row, engine.logits(last - DRAFTED + index))


def test_beside_another_sequence(engine: LlamaEngine) -> None:
    """The draft comes last in the batch: what it leaves is free cells at the end, and no order is disturbed."""
    if engine.memory.num_sequences == 1:
        pytest.skip("one sequence at a time")
    logits = []
    for offset in (3, 11):
        tokens, work = drafted(engine, offset=offset)
        read(engine, 0, tokens[:LENGTH])
        read(engine, 1, tokens[:50])
        for step in range(3):
            engine.decode([Work(1, tokens[50 + step : 51 + step]), work])
            num_held = engine.settle(work, SURE)
            assert engine.memory.length(0) == LENGTH + SURE * step + num_held
            if num_held < SURE:
                read(engine, 0, work.tokens[num_held:SURE])
        logits.append((go_on(engine, tokens, SURE), read(engine, 1, tokens[60:62])))
        engine.memory.drop(0)
        engine.memory.drop(1)
    for one, other in zip(*logits, strict=True):
        np.testing.assert_array_equal(one, other)


def test_wrong_use_is_refused(engine: LlamaEngine) -> None:
    tokens, work = drafted(engine, offset=3)
    read(engine, 0, tokens[:LENGTH])
    with pytest.raises(InputError, match="no tokens"):
        engine.decode([Work(0, work.tokens, num_drafted=work.tokens.size)])
    engine.decode([work])
    with pytest.raises(InputError, match="1 of 6 tokens kept"):
        engine.settle(work, 1)
    if engine.memory.kind is MemoryKind.HYBRID:
        with pytest.raises(InputError, match="settle the draft first"):
            engine.memory.save_pages(0, [(0, 10)])
    engine.settle(work, SURE)
