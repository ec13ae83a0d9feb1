"""A restored state is the state: for every architecture, bit for bit, with a control that a wrong one would show."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.errors import InputError
from leftoff.engine.memory.base import MemoryKind, PagePart, Share
from leftoff.types import Logits, Tokens
from tests.engine.conftest import SETTINGS
from tests.engine.scenario import Saved, cold, fork, load, prompt, read, reply, save
from tests.factory import ARCHITECTURES
from tests.scheduler.recorder import ROUNDING, assert_greedy

# Past the windows and the longest compressed row, which is of 128 tokens, and no multiple of a page, chunk or tile.
LENGTH = 141
TAIL = 23  # three of them are more than a tile
REPLY = 8
# Pieces of less than 64 tokens are added up cell by cell, wherever the cells lie.
PIECE = 32

pytestmark = pytest.mark.parametrize("engine", ARCHITECTURES, indirect=True)


@dataclass(frozen=True)
class Told:
    """A prompt, and what an engine that never stopped says after it: the measure of the tests."""

    tokens: Tokens
    logits: Logits
    replied: list[int]
    after: list[Logits]


@dataclass(frozen=True)
class Forks:
    """A beginning with several tails, what is said after each alone, and how far that moves beside each other."""

    shared: Tokens
    tails: list[Tokens]
    alone: list[Logits]
    noise: float


@pytest.fixture(scope="module")
def told(engine: LlamaEngine) -> Told:
    tokens = prompt(engine, LENGTH + TAIL)
    return Told(tokens, *cold(engine, tokens, REPLY))


@pytest.fixture(scope="module")
def forks(engine: LlamaEngine) -> Forks:
    return forks_of(engine, prompt(engine, LENGTH), [prompt(engine, TAIL, seed=10 + index) for index in range(3)])


def forks_of(engine: LlamaEngine, shared: Tokens, tails: list[Tokens]) -> Forks:
    alone = [cold(engine, np.concatenate([shared, tail]))[0] for tail in tails]
    return Forks(shared, tails, alone, batching_noise(engine, shared, tails, alone))


def cut_back_with(engine: LlamaEngine, seq: int, saved: Saved) -> None:
    """Go back in place: the attention that is there already, and the snapshot."""
    share = Share(seq, saved.length) if engine.memory.kind.has_pages else None
    engine.memory.restore(seq, saved.length, share=share, snapshot=saved.snapshot)


def wrong_by_one(engine: LlamaEngine, tokens: Tokens) -> Saved:
    """The state of the same prompt, but for its last token."""
    changed = tokens.copy()
    changed[-1] = (changed[-1] + 1) % engine.model.vocabulary.size
    read(engine, 0, changed)
    saved = save(engine, 0)
    engine.memory.drop(0)
    return saved


def test_one_sequence_goes_on_bit_identically(engine: LlamaEngine, told: Told) -> None:
    tokens, expected = told.tokens, told.logits
    wrong = wrong_by_one(engine, tokens[:LENGTH])
    other = engine.memory.num_sequences - 1

    read(engine, 0, tokens[:LENGTH])
    saved = save(engine, 0)
    gone_on = read(engine, 0, tokens[LENGTH:])

    cut_back_with(engine, 0, saved)
    after_cut = read(engine, 0, tokens[LENGTH:])

    engine.memory.drop(0)
    load(engine, other, saved)
    assert engine.memory.length(other) == LENGTH
    after_load = read(engine, other, tokens[LENGTH:])
    replied, after = reply(engine, other, after_load, REPLY)

    engine.memory.drop(other)
    load(engine, other, wrong)
    control = read(engine, other, tokens[LENGTH:])

    np.testing.assert_array_equal(gone_on, expected)
    np.testing.assert_array_equal(after_cut, expected)
    np.testing.assert_array_equal(after_load, expected)
    assert replied == told.replied
    np.testing.assert_array_equal(after, told.after)
    assert not np.array_equal(control, expected), "a state wrong by one token must show"


def test_state_of_another_length_is_refused_and_would_show(engine: LlamaEngine) -> None:
    tokens = prompt(engine, LENGTH)
    expected, _, _ = cold(engine, tokens)
    read(engine, 0, tokens[: LENGTH - 2])
    short = save(engine, 0)
    with pytest.raises(InputError):
        engine.memory.restore(
            1 % engine.memory.num_sequences,
            LENGTH - 1,
            pages=[page.whole() for page in short.pages],
            snapshot=short.snapshot,
        )
    engine.memory.drop(0)
    load(engine, 0, short)
    assert not np.array_equal(read(engine, 0, tokens[LENGTH - 1 :]), expected)


def test_saved_bytes_come_back_unchanged_from_any_sequence(engine: LlamaEngine) -> None:
    memory = engine.memory
    lives = min(3, memory.num_sequences)
    saved = []
    for seq in range(lives):
        read(engine, seq, prompt(engine, LENGTH - 11 * seq, seed=seq))
        saved.append(save(engine, seq))
    for seq in range(lives):
        target = (seq + 1) % memory.num_sequences
        load(engine, target, saved[seq])
        assert save(engine, target).content == saved[seq].content
    changed = replace(saved[0], pages=saved[0].pages[:-1]) if saved[0].pages else saved[-1]
    assert lives == 1 or changed.content != saved[0].content


def test_pages_load_in_parts_and_on_top_of_shared_cells(engine: LlamaEngine, told: Told) -> None:
    memory = engine.memory
    if not memory.kind.has_pages:
        with pytest.raises(InputError, match="no pages"):
            memory.save_page(0, 0, 1)
        return
    tokens = told.tokens
    read(engine, 0, tokens[:LENGTH])
    saved = save(engine, 0, page_tokens=80)
    first = saved.pages[0]
    parts = [PagePart(first, 0, 33), PagePart(first, 33, 80), *(page.whole() for page in saved.pages[1:])]
    memory.drop(0)
    memory.restore(1, LENGTH, pages=parts, snapshot=saved.snapshot)
    np.testing.assert_array_equal(read(engine, 1, tokens[LENGTH:]), told.logits)

    # [0 ·· shared with sequence 1 ·· 33)[33 ···· pages ···· LENGTH)
    memory.restore(2, LENGTH, share=Share(1, 33), pages=parts[1:], snapshot=saved.snapshot)
    replied, _ = reply(engine, 2, read(engine, 2, tokens[LENGTH:]), REPLY)
    # and in place, over a tail that is replaced
    memory.restore(2, LENGTH, share=Share(2, 33), pages=parts[1:], snapshot=saved.snapshot)
    assert save(engine, 2, page_tokens=80).content == saved.content
    assert_greedy(engine, tokens, replied)


def test_forks_diverge_without_touching_each_other(engine: LlamaEngine, forks: Forks) -> None:
    read(engine, 0, forks.shared)
    for target in (1, 2):
        fork(engine.memory, 0, target, LENGTH)
    rows = engine.decode([Work(seq, tail) for seq, tail in enumerate(forks.tails)])
    logits = [engine.logits(row).copy() for row in rows]
    for expected, found in zip(forks.alone, logits, strict=True):
        assert np.abs(found - expected).max() <= forks.noise
    assert np.abs(logits[0] - logits[1]).max() > 5 * forks.noise, "the forks must differ visibly"
    replies = [reply(engine, seq, logits[seq], REPLY)[0] for seq in range(3)]
    for tail, replied in zip(forks.tails, replies, strict=True):
        assert_greedy(engine, np.concatenate([forks.shared, tail]), replied, max(ROUNDING, forks.noise))


def test_a_fork_saved_and_loaded_again_goes_on(engine: LlamaEngine, forks: Forks) -> None:
    memory = engine.memory
    tail, other_tail = forks.tails[:2]
    read(engine, 0, forks.shared)
    fork(memory, 0, 1, LENGTH)
    read(engine, 0, other_tail)
    fork_logits = read(engine, 1, tail)
    saved = save(engine, 1)
    memory.drop(1)
    load(engine, 2, saved)
    assert save(engine, 2).content == saved.content
    assert np.abs(fork_logits - forks.alone[0]).max() <= forks.noise
    replied, _ = reply(engine, 2, fork_logits, REPLY)
    other = read(engine, 0, tail)
    assert np.abs(other - forks.alone[0]).max() > 10 * forks.noise, "another past must show"
    assert_greedy(engine, np.concatenate([forks.shared, tail]), replied)


def test_three_interleaved_sequences_reply_as_if_alone(engine: LlamaEngine) -> None:
    memory = engine.memory
    prompts = [prompt(engine, LENGTH + 5 * seq, seed=30 + seq) for seq in range(3)]
    logits = [read(engine, seq, tokens, PIECE) for seq, tokens in enumerate(prompts)]
    replies: list[list[int]] = [[], [], []]
    for step in range(REPLY):
        works = []
        for seq in range(3):
            replies[seq].append(int(logits[seq].argmax()))
            works.append(Work(seq, np.array(replies[seq][-1:], np.int32)))
        rows = engine.decode(works)
        logits = [engine.logits(row).copy() for row in rows]
        if step == REPLY // 2:  # one of them goes out and comes back in the middle of its reply
            saved = save(engine, 1)
            memory.drop(1)
            load(engine, 1, saved)
    assert len({tuple(tokens) for tokens in replies}) == 3
    for tokens, replied in zip(prompts, replies, strict=True):
        assert_greedy_in_pieces(engine, tokens, replied)


def test_parked_state_comes_back(engine: LlamaEngine) -> None:
    memory = engine.memory
    tokens = prompt(engine, LENGTH)
    logits = read(engine, 0, tokens, PIECE)
    spare = memory.num_sequences - 1
    fork(memory, 0, spare, LENGTH)
    read(engine, 0, prompt(engine, TAIL, seed=40))
    fork(memory, spare, 0, LENGTH)
    assert_greedy_in_pieces(engine, tokens, reply(engine, 0, logits, REPLY)[0])


def test_cutting_back_without_a_snapshot(engine: LlamaEngine) -> None:
    """Attention is cut anywhere, a window within what it remembers; the others say that they cannot."""
    memory = engine.memory
    tokens = prompt(engine, LENGTH)
    _, expected_reply, _ = cold(engine, tokens, REPLY)
    logits = read(engine, 0, tokens)
    read(engine, 0, prompt(engine, 1, seed=50))
    if memory.kind in (MemoryKind.ATTENTION, MemoryKind.WINDOW):
        fork(memory, 0, 0, LENGTH)
        assert reply(engine, 0, logits, REPLY)[0] == expected_reply
    else:
        assert_cannot_cut(engine, LENGTH)


def test_a_window_that_forgot_says_so_and_comes_back(engine: LlamaEngine) -> None:
    """So many tokens that the cells of the window have been used several times over."""
    if not engine.model.window or not engine.memory.kind.has_pages:
        assert engine.memory.kind is not MemoryKind.WINDOW
        return
    # A window has cells for a micro-batch beside it: with short ones there are few.
    with LlamaEngine.open(engine.model.path, replace(SETTINGS, micro_batch_tokens=64)) as small:
        check_that_it_forgets_and_comes_back(small, num_tokens=500)


def check_that_it_forgets_and_comes_back(engine: LlamaEngine, num_tokens: int) -> None:
    memory, tokens = engine.memory, prompt(engine, num_tokens + TAIL)
    tail = tokens[num_tokens:]
    forks = forks_of(engine, tokens[:num_tokens], [tail, tail[::-1]])
    read(engine, 0, forks.shared)
    saved = save(engine, 0)
    read(engine, 0, tail)
    assert_cannot_cut(engine, num_tokens // 2)
    memory.drop(0)
    load(engine, 1, saved)
    assert save(engine, 1).content == saved.content
    logits = read(engine, 1, tail)
    # The cells of the window lie elsewhere now, which moves the rounding as a neighbour in the batch does.
    assert np.abs(logits - forks.alone[0]).max() <= forks.noise


def assert_cannot_cut(engine: LlamaEngine, length: int) -> None:
    before = engine.memory.length(0)
    assert not engine.memory.can_cut(0, length)
    with pytest.raises(InputError, match=f"needs a snapshot at {length}"):
        fork(engine.memory, 0, 0, length)
    assert engine.memory.length(0) == before


def assert_greedy_in_pieces(engine: LlamaEngine, tokens: Tokens, replied: list[int]) -> None:
    """The reply is what an engine says that has read the same pieces with nobody beside it.

    A model that selects experts or tokens may select others where only the pieces differ, which moves its logits by 1.
    """
    for seq in range(engine.memory.num_sequences):
        engine.memory.drop(seq)
    logits = read(engine, 0, tokens, PIECE)
    for index, token in enumerate(replied):
        assert logits.max() - logits[token] < ROUNDING, f"token {index} of the reply is not what comes next"
        logits = read(engine, 0, np.array([token], np.int32))


def batching_noise(engine: LlamaEngine, shared: Tokens, tails: list[Tokens], alone: list[Logits]) -> float:
    """How far the library's own logits move when sequences are read beside each other instead of alone."""
    for seq in range(len(tails)):
        read(engine, seq, shared)
    rows = engine.decode([Work(seq, tail) for seq, tail in enumerate(tails)])
    moved = max(float(np.abs(engine.logits(row) - logits).max()) for row, logits in zip(rows, alone, strict=True))
    for seq in range(len(tails)):
        engine.memory.drop(seq)
    # Rounding differs from one placing of cells to the next: allow a few times what one placing showed.
    return 4 * moved + 1e-5


def test_a_sequence_that_is_emptied_begins_anew(engine: LlamaEngine) -> None:
    """Cut back to nothing, or, but for windows, overwritten with what was saved of a sequence without tokens."""
    memory, tokens = engine.memory, prompt(engine, 40)
    expected, _, _ = cold(engine, tokens)
    nothing = None if engine.model.window else save(engine, 0)
    for saved in (None, nothing):
        read(engine, 0, prompt(engine, 50, seed=2))
        if saved is None:
            fork(memory, 0, 0, 0)
        else:
            load(engine, 0, saved)
        assert memory.length(0) == 0
        np.testing.assert_array_equal(read(engine, 0, tokens), expected)
        memory.drop(0)
