"""The cells of a sequence lie in the order of its positions, whatever happens around it: so its logits do not change.

With one thread and pieces of less than 64 tokens the CPU adds up attention cell by cell: where the order is right, the
logits are those of a sequence that read the same pieces alone, bit for bit.
"""

from collections.abc import Iterator

import numpy as np
import pytest

from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.memory.base import Share
from leftoff.engine.memory.join import Join
from leftoff.engine.memory.paged import PagedMemory
from leftoff.types import Logits, Tokens
from tests.engine.memory.placed import attention_cells, mirrored_cells, window_positions
from tests.engine.scenario import fork, load, prompt, read, reply, save, with_locked_memory
from tests.factory import model_path

PIECE = 32
SMALL = ContextSettings(num_cells=1024, num_sequences=4, batch_tokens=256, micro_batch_tokens=64, threads=1)

WITH_CELLS = ["llama", "qwen35", "gemma3", "lfm2-window", "deepseek2", "deepseek32"]
with_cells = pytest.mark.parametrize("engine", WITH_CELLS, indirect=True)
with_window = pytest.mark.parametrize("engine", ["gemma3", "lfm2-window"], indirect=True)


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[LlamaEngine]:
    with LlamaEngine.open(model_path(request.param), SMALL) as engine:
        yield engine


@pytest.fixture(autouse=True)
def _start_empty(engine: LlamaEngine) -> None:
    engine.memory.clear()


def some(engine: LlamaEngine, num_tokens: int, seed: int = 1) -> Tokens:
    return prompt(engine, num_tokens, seed)


def read_alone(engine: LlamaEngine, *parts: Tokens, num_reply: int = 0) -> tuple[Logits, list[int]]:
    """What a sequence says that reads these parts, one after the other, in an engine of its own."""
    engine.memory.clear()
    for part in parts:
        logits = read(engine, 0, part, PIECE)
    replied, _ = reply(engine, 0, logits, num_reply)
    engine.memory.clear()
    return logits, replied


def wander(engine: LlamaEngine, rng: np.random.Generator) -> None:
    """One random step: a batch of one or many sequences, a fork, a load behind shared cells, a cut, a drop, a move."""
    memory = engine.memory
    seq, other, third = rng.permutation(memory.num_sequences)[:3].tolist()
    match rng.choice(["batch", "step", "fork", "join", "cut", "drop", "move"]):
        case "batch":
            seqs = [seq, other, third][: rng.integers(1, 4)]
            engine.decode([Work(seq, some(engine, int(rng.integers(1, 40)))) for seq in seqs])
        case "step":
            for _ in range(5):
                engine.decode([Work(seq, some(engine, 1)) for seq in range(memory.num_sequences)])
        case "fork":
            fork(memory, seq, other, memory.length(seq))
        case "join" if memory.length(seq) > 1:
            join(engine, seq, other, int(rng.integers(1, memory.length(seq))))
            engine.decode([Work(other, some(engine, 3))])
        case "cut" if memory.can_cut(seq, length := int(rng.integers(0, memory.length(seq) + 1))):
            fork(memory, seq, seq, length)
        case "drop":
            memory.drop(seq)
        case "move" if memory.length(seq):
            saved = save(engine, seq)
            memory.drop(seq)
            load(engine, other, saved)
    if memory.free_cells < 400:
        memory.drop(third)


def join(engine: LlamaEngine, source: int, target: int, num_shared: int) -> None:
    """Makes `target` the same as `source`: its beginning shared, the rest loaded."""
    memory, length = engine.memory, engine.memory.length(source)
    page = memory.save_page(source, num_shared, length)
    snapshot = memory.save_snapshot(source) if memory.kind.has_snapshots else None
    memory.restore(target, length, share=Share(source, num_shared), pages=[page.whole()], snapshot=snapshot)


@with_cells
@pytest.mark.parametrize("seed", range(2))
def test_the_mirror_shows_the_cells_as_they_are_and_they_ascend(engine: LlamaEngine, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(40):
        wander(engine, rng)
        cells = attention_cells(engine)
        assert cells == mirrored_cells(engine)
        for seq in range(engine.memory.num_sequences):
            positions = [cell.position for cell in cells if seq in cell.seqs]
            assert positions == [*range(engine.memory.length(seq))], f"sequence {seq} lies out of order"


@pytest.fixture
def like_a_gpu(engine: LlamaEngine) -> Iterator[LlamaEngine]:
    """Cells are left where they lie."""
    with with_locked_memory(engine, 1 << 22):
        yield engine


@with_cells
@pytest.mark.parametrize("seed", range(2))
def test_on_a_gpu_the_mirror_shows_the_cells_as_they_are_and_what_is_saved_is_in_order(
    like_a_gpu: LlamaEngine, seed: int
) -> None:
    rng, memory, num_disordered = np.random.default_rng(seed), like_a_gpu.memory, 0
    for _ in range(40):
        wander(like_a_gpu, rng)
        cells = attention_cells(like_a_gpu)
        assert cells == mirrored_cells(like_a_gpu)
        for seq in range(memory.num_sequences):
            positions = [cell.position for cell in cells if seq in cell.seqs]
            assert sorted(positions) == [*range(memory.length(seq))]
            if positions != sorted(positions) and memory.free_cells > memory.length(seq):
                num_disordered += 1
                saved = save(like_a_gpu, seq)
                memory.drop(seq)
                load(like_a_gpu, seq, saved)
                assert save(like_a_gpu, seq).content == saved.content
    assert num_disordered > 3


@pytest.mark.parametrize("engine", ["llama", "qwen35", "gemma3"], indirect=True)
@pytest.mark.parametrize(
    ("holes", "expected"), [([40], [40, 160]), ([5], [5, 195]), ([3, 4, 50, 2], [7, 50, 2, 141]), ([], [200])]
)
def test_on_a_gpu_each_long_run_of_free_cells_is_filled_by_one_transfer(
    like_a_gpu: LlamaEngine, monkeypatch: pytest.MonkeyPatch, holes: list[int], expected: list[int]
) -> None:
    """To cells that do not follow each other, llama.cpp transfers every row of every layer alone."""
    memory = like_a_gpu.memory
    assert isinstance(memory, PagedMemory)
    read(like_a_gpu, 0, some(like_a_gpu, 200))
    saved = save(like_a_gpu, 0)
    memory.clear()
    for length in holes:
        read(like_a_gpu, 1, some(like_a_gpu, 10))
        read(like_a_gpu, 2, some(like_a_gpu, length))
    read(like_a_gpu, 1, some(like_a_gpu, 10))
    memory.drop(2)
    loaded, load_group = [], memory._load_group

    def watched(seq: int, join: Join) -> None:
        loaded.append(join.num_tokens)
        load_group(seq, join)

    monkeypatch.setattr(memory, "_load_group", watched)
    load(like_a_gpu, 0, saved)
    assert loaded == expected
    assert save(like_a_gpu, 0).content == saved.content
    assert attention_cells(like_a_gpu) == mirrored_cells(like_a_gpu)


@with_cells
def test_a_sequence_does_not_go_on_in_a_hole_before_its_beginning(engine: LlamaEngine) -> None:
    memory, tokens = engine.memory, some(engine, 115, seed=2)
    expected, expected_reply = read_alone(engine, tokens[:93], tokens[93:], num_reply=8)
    read(engine, 1, some(engine, 25), PIECE)
    read(engine, 0, tokens[:93], PIECE)
    read(engine, 2, some(engine, 60), PIECE)
    memory.drop(1)
    logits = read(engine, 0, tokens[93:], PIECE)
    np.testing.assert_array_equal(logits, expected)
    assert reply(engine, 0, logits, 8)[0] == expected_reply


@with_cells
@pytest.mark.parametrize("num_free", [33, 60])
def test_what_is_loaded_behind_shared_cells_does_not_stay_in_a_hole_before_them(
    engine: LlamaEngine, num_free: int
) -> None:
    """Whether it fills the hole or not."""
    memory, tokens = engine.memory, some(engine, 115, seed=2)
    expected, expected_reply = read_alone(engine, tokens[:93], tokens[93:], num_reply=8)
    read(engine, 1, some(engine, num_free), PIECE)
    read(engine, 0, tokens[:93], PIECE)
    memory.drop(1)
    join(engine, 0, 2, 60)
    logits = read(engine, 2, tokens[93:], PIECE)
    np.testing.assert_array_equal(logits, expected)
    assert reply(engine, 2, logits, 8)[0] == expected_reply


@with_cells
def test_many_that_run_while_others_come_and_go_get_the_logits_of_one_alone(engine: LlamaEngine) -> None:
    memory = engine.memory
    prompts = [some(engine, 90 + 10 * seq, seed=seq) for seq in range(3)]
    expected = [read_alone(engine, *np.split(tokens, range(30, tokens.size, 30)))[0] for tokens in prompts]
    read(engine, 3, some(engine, 40), PIECE)
    for start in range(0, 120, 30):  # by turns, so that their cells lie between each other
        for seq, tokens in enumerate(prompts):
            if tokens[start : start + 30].size:
                logits = read(engine, seq, tokens[start : start + 30], PIECE)
                if start + 30 >= tokens.size:
                    np.testing.assert_array_equal(logits, expected[seq])
        memory.drop(3)
        read(engine, 3, some(engine, 10 + start), PIECE)


@with_window
def test_a_window_is_shared_and_the_source_dropped(engine: LlamaEngine) -> None:
    memory, tokens = engine.memory, some(engine, 192, seed=3)
    expected, expected_reply = read_alone(engine, tokens[:164], tokens[164:], num_reply=8)
    logits = read(engine, 0, tokens[:164], PIECE)
    fork(memory, 0, 1, 164)
    reply(engine, 0, logits, 4)
    memory.drop(0)
    logits = read(engine, 1, tokens[164:], PIECE)
    np.testing.assert_array_equal(logits, expected)
    assert reply(engine, 1, logits, 8)[0] == expected_reply


@with_window
@pytest.mark.parametrize("num_others", [0, 1, 2])
def test_a_window_never_begins_again_at_the_first_cell(engine: LlamaEngine, num_others: int) -> None:
    """So many tokens that llama.cpp would have gone round its cells several times."""
    for seq in range(1, 1 + num_others):
        read(engine, seq, some(engine, 50, seed=seq), PIECE)
    tokens, window = some(engine, 550, seed=4), engine.model.window
    for start in range(0, 550, 25):
        read(engine, 0, tokens[start : start + 25], PIECE)
        for seq in range(1, 1 + num_others):
            read(engine, seq, tokens[start : start + 1])
        end = engine.memory.length(0)
        assert window_positions(engine, 0)[-window + 1 :] == [*range(max(0, end - window + 1), end)]


@with_window
def test_whoever_saved_a_window_goes_on_like_the_one_who_loads_it(engine: LlamaEngine) -> None:
    """With pieces of 64 tokens, where it matters also at which cell a window begins."""
    memory, tokens = engine.memory, some(engine, 400, seed=5)
    read(engine, 0, tokens[:300], 64)
    saved = save(engine, 0)
    expected = read(engine, 0, tokens[300:], 100)
    memory.clear()
    load(engine, 2, saved)
    np.testing.assert_array_equal(read(engine, 2, tokens[300:], 100), expected)


@with_cells
def test_after_a_clear_nothing_is_left_and_the_first_cell_comes_first(engine: LlamaEngine) -> None:
    memory, tokens = engine.memory, some(engine, 100)
    expected = read(engine, 0, tokens, 64)
    read(engine, 1, tokens, 64)
    memory.clear()
    assert (memory.free_cells, [*map(memory.length, range(4))]) == (memory.num_cells, [0] * 4)
    np.testing.assert_array_equal(read(engine, 3, tokens, 64), expected)


@pytest.mark.parametrize("engine", ["llama"], indirect=True)
def test_cells_that_others_hold_too_move_without_being_taken_from_them(engine: LlamaEngine) -> None:
    memory, tokens = engine.memory, some(engine, 120, seed=6)
    expected, expected_fork = (read_alone(engine, tokens[:end], tokens[end:])[0] for end in (100, 80))
    read(engine, 0, some(engine, 30), PIECE)
    read(engine, 1, tokens[:100], PIECE)
    memory.restore(2, 80, share=Share(1, 80))
    memory.drop(0)
    np.testing.assert_array_equal(read(engine, 1, tokens[100:], PIECE), expected)
    np.testing.assert_array_equal(read(engine, 2, tokens[80:], PIECE), expected_fork)
