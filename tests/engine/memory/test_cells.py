"""The count of free cells is llama.cpp's own: it decodes and loads that many tokens, and not one more."""

from collections.abc import Iterator
from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leftoff.engine.batch import BatchPart
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.errors import NoRoomError
from leftoff.engine.memory.cells import CellMap
from leftoff.types import Tokens
from tests.engine.scenario import cold, fork, load, prompt, read, reply, save
from tests.factory import model_path

NUM_CELLS = 40
NUM_SEQUENCES = 4
SMALL = ContextSettings(num_cells=512, num_sequences=4, batch_tokens=512, micro_batch_tokens=64, threads=1)
STEPS = st.lists(st.tuples(st.sampled_from(["extend", "share", "cut"]), *[st.integers(0, 999)] * 3), max_size=50)

with_cells = pytest.mark.parametrize("engine", ["llama", "qwen35", "gemma3", "lfm2-window", "deepseek2"], indirect=True)
without_window = pytest.mark.parametrize("engine", ["llama", "qwen35", "deepseek2"], indirect=True)
with_any_memory = pytest.mark.parametrize("engine", ["llama", "qwen35", "gemma3", "deepseek4"], indirect=True)


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[LlamaEngine]:
    """With few cells, and a window that has fewer of them than the rest."""
    with LlamaEngine.open(model_path(request.param), SMALL) as engine:
        yield engine


@settings(deadline=None)
@given(steps=STEPS)
def test_the_map_counts_as_sets_of_cells_do(steps: list[tuple[str, int, int, int]]) -> None:
    cell_map = CellMap(NUM_CELLS, NUM_SEQUENCES)
    cells: list[list[int]] = [[] for _ in range(NUM_SEQUENCES)]
    fresh = count()
    for step, first, second, number in steps:
        seq, other = first % NUM_SEQUENCES, second % NUM_SEQUENCES
        if step == "extend":
            num_tokens = number % (cell_map.num_free + 1)
            cell_map.extend(seq, num_tokens)
            cells[seq] += [next(fresh) for _ in range(num_tokens)]
        elif step == "cut" or seq == other:
            length = number % (len(cells[seq]) + 1)
            cell_map.cut(seq, length)
            del cells[seq][length:]
        else:
            length = number % (len(cells[seq]) + 1)
            cell_map.cut(other, 0)
            cell_map.share(seq, other, length)
            cells[other] = cells[seq][:length]
        assert cell_map.lengths == [*map(len, cells)]
        assert cell_map.num_free == NUM_CELLS - len(set().union(*cells))


def wander(engine: LlamaEngine, seed: int) -> None:
    """Random reading, forking, cutting and dropping: cells are shared, and free ones lie scattered."""
    memory, rng = engine.memory, np.random.default_rng(seed)
    for _ in range(30):
        seq, other = rng.permutation(memory.num_sequences)[:2].tolist()
        match rng.choice(["read", "read", "fork", "cut", "drop"]):
            case "read":
                num_tokens = int(rng.integers(1, 60))
                if num_tokens <= memory.free_cells:
                    read(engine, seq, prompt(engine, num_tokens, seed))
            case "fork":
                length = int(rng.integers(0, memory.length(seq) + 1))
                length = length if memory.can_cut(seq, length) else memory.length(seq)
                fork(memory, seq, other, length)
            case "cut":
                length = int(rng.integers(0, memory.length(seq) + 1))
                if memory.can_cut(seq, length):
                    fork(memory, seq, seq, length)
            case "drop":
                memory.drop(seq)
    read(engine, 0, prompt(engine, 7))


def ask_llama(engine: LlamaEngine, seq: int, tokens: Tokens) -> None:
    """Decodes past all that we count ourselves."""
    context = engine.context
    context.fill_batch(BatchPart(seq, tokens, engine.memory.length(seq), num_logits=0))
    context.decode()


@with_cells
@pytest.mark.parametrize("seed", range(6))
def test_after_any_history_exactly_the_free_cells_can_be_read(engine: LlamaEngine, seed: int) -> None:
    wander(engine, seed)
    memory = engine.memory
    read(engine, 3, prompt(engine, 1))
    room = memory.free_cells
    assert 0 < room < memory.num_cells, "a history that leaves nothing to count: choose another seed"
    engine.decode([Work(3, prompt(engine, room), logits=False)])
    assert memory.free_cells == 0
    before = [save(engine, seq).content for seq in range(memory.num_sequences)]
    for seq in range(memory.num_sequences):
        with pytest.raises(NoRoomError, match="free cells"):
            engine.decode([Work(seq, prompt(engine, 1))])
        with pytest.raises(NoRoomError, match="no room for 1 more"):
            ask_llama(engine, seq, prompt(engine, 1))
    assert [save(engine, seq).content for seq in range(memory.num_sequences)] == before


@with_cells
@pytest.mark.parametrize("seed", range(4))
def test_after_any_history_exactly_the_free_cells_can_be_loaded(engine: LlamaEngine, seed: int) -> None:
    memory = engine.memory

    def history() -> int:
        empty(engine)
        wander(engine, seed)
        memory.drop(3)
        return memory.free_cells

    room = history()
    empty(engine)
    read(engine, 0, prompt(engine, room))
    fitting = save(engine, 0)
    read(engine, 0, prompt(engine, 1))
    one_more = save(engine, 0)
    assert history() == room
    others = [save(engine, seq).content for seq in range(3)]
    with pytest.raises(NoRoomError, match=f"{room + 1} tokens do not fit in the {room} free cells"):
        load(engine, 3, one_more)
    assert (memory.length(3), memory.free_cells) == (0, room)
    load(engine, 3, fitting)
    assert (memory.length(3), memory.free_cells) == (room, 0)
    assert save(engine, 3).content == fitting.content
    assert [save(engine, seq).content for seq in range(3)] == others


@with_any_memory
def test_a_sequence_that_found_no_room_goes_on_bit_identically(engine: LlamaEngine) -> None:
    memory = engine.memory
    tokens, too_long = prompt(engine, 150), prompt(engine, memory.num_cells - 127)
    expected, expected_reply, _ = cold(engine, tokens, 8)
    read(engine, 0, tokens[:128])
    assert memory.free_cells == memory.num_cells - 128
    with pytest.raises(NoRoomError, match="free cells"):
        engine.decode([Work(0, too_long)])
    with pytest.raises(NoRoomError, match="no room for"):
        ask_llama(engine, 0, too_long)
    logits = read(engine, 0, tokens[128:])
    np.testing.assert_array_equal(logits, expected)
    assert reply(engine, 0, logits, 8)[0] == expected_reply


@without_window  # whose cells would lie elsewhere then, which moves the rounding
def test_room_is_back_when_a_neighbour_leaves(engine: LlamaEngine) -> None:
    memory = engine.memory
    tokens = prompt(engine, 150)
    expected, _, _ = cold(engine, tokens)
    read(engine, 0, tokens[:128])
    read(engine, 1, prompt(engine, memory.free_cells, seed=2))
    with pytest.raises(NoRoomError):
        engine.decode([Work(0, tokens[128:])])
    memory.drop(1)
    np.testing.assert_array_equal(read(engine, 0, tokens[128:]), expected)


@with_cells
def test_a_fork_takes_no_cells_until_it_goes_on(engine: LlamaEngine) -> None:
    memory = engine.memory
    read(engine, 0, prompt(engine, 200))
    free = memory.free_cells
    for seq in (1, 2, 3):
        fork(memory, 0, seq, 200)
    assert memory.free_cells == free == memory.num_cells - 200
    engine.decode([Work(seq, prompt(engine, 20, seq)) for seq in range(4)])
    assert memory.free_cells == free - 80
    memory.drop(0)
    assert memory.free_cells == free - 60, "its first 200 cells are still held by the forks"
    for seq in (1, 2, 3):
        memory.drop(seq)
    assert memory.free_cells == memory.num_cells


def empty(engine: LlamaEngine) -> None:
    for seq in range(engine.memory.num_sequences):
        engine.memory.drop(seq)
