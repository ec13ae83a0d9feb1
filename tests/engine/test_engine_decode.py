"""Batches of any shape are read as the sequences alone would be; what cannot be read is refused and costs nothing."""

import numpy as np
import pytest

from leftoff.engine.batch import BatchPart
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.errors import EngineError, InputError, NoRoomError
from leftoff.engine.sampler import Sampler
from leftoff.sampling import Sampling
from tests.engine.scenario import cold, prompt, read, standing

KINDS = ["llama", "qwen35", "gemma3", "mamba2"]
pytestmark = pytest.mark.parametrize("engine", KINDS, indirect=True)

NOISE = 0.1  # of sums over cells in another order; other tokens move the logits by whole units


def test_several_sequences_are_read_in_one_batch(engine: LlamaEngine) -> None:
    prompts = [prompt(engine, 30 + 7 * seq, seed=seq) for seq in range(4)]
    expected = [cold(engine, tokens)[0] for tokens in prompts]
    rows = engine.decode([Work(seq, tokens) for seq, tokens in enumerate(prompts)])
    assert rows == (np.cumsum([tokens.size for tokens in prompts]) - 1).tolist()
    for seq, row in enumerate(rows):
        assert engine.memory.length(seq) == prompts[seq].size
        np.testing.assert_allclose(engine.logits(row), expected[seq], atol=NOISE)
    assert min(np.abs(expected[0] - other).max() for other in expected[1:]) > 10 * NOISE


def test_all_logits_are_those_of_every_prefix(engine: LlamaEngine) -> None:
    tokens = prompt(engine, 12)
    (last,) = engine.decode([Work(0, tokens, all_logits=True)])
    rows = [engine.logits(row).copy() for row in range(12)]
    assert last == 11
    for length, logits in enumerate(rows, start=1):
        np.testing.assert_allclose(logits, cold(engine, tokens[:length])[0], atol=NOISE)


def test_works_with_and_without_logits_share_a_batch(engine: LlamaEngine) -> None:
    tokens = prompt(engine, 6)
    expected = cold(engine, tokens)[0]
    rows = engine.decode([Work(0, tokens, logits=False), Work(1, tokens), Work(2, tokens, all_logits=True)])
    assert rows == [5, 11, 17]
    for row in (-1, *range(11), 18, 99):
        with pytest.raises(InputError, match=f"row {row} of the last batch has no logits"):
            engine.logits(row)
    assert all(np.isfinite(engine.logits(row)).all() for row in range(11, 18))
    np.testing.assert_allclose(engine.logits(11), expected, atol=NOISE)
    with pytest.raises(InputError, match="row 5 "):
        Sampler(engine.model, Sampling()).sample(engine.context, 5)


def zeros(seq: int, num_tokens: int = 2) -> Work:
    return Work(seq, np.zeros(num_tokens, np.int32))


REFUSED: dict[str, tuple[list[Work], str]] = {
    "nothing": ([], "nothing to decode"),
    "no tokens": ([zeros(0, 0)], "no tokens for sequence 0"),
    "a sequence twice": ([zeros(1), zeros(1, 3)], "twice in one batch"),
    **{f"token {bad}": ([Work(0, np.array([1, bad]))], f"token {bad} is not") for bad in (-1, 2**31 - 1, 2**40)},
    **{f"sequence {seq}": ([zeros(seq)], f"sequence {seq} does not exist") for seq in (-1, 5, 99)},
    "one bad work": ([zeros(0), zeros(5)], "sequence 5 does not exist"),
    "a long batch": ([zeros(0, 2049)], "more than 2048 tokens in one batch"),
    "a long sum": ([zeros(0, 1025), zeros(1, 1025)], "more than 2048 tokens in one batch"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_decoded_is_refused_and_nothing_changes(engine: LlamaEngine, case: str) -> None:
    works, message = REFUSED[case]
    tokens = prompt(engine, 140)
    expected, _, _ = cold(engine, tokens)
    read(engine, 0, tokens[:128])
    before = standing(engine)
    with pytest.raises(InputError, match=message):
        engine.decode(works)
    assert standing(engine) == before
    np.testing.assert_array_equal(read(engine, 0, tokens[128:]), expected)


def test_the_first_id_beyond_the_vocabulary_is_refused(engine: LlamaEngine) -> None:
    size = engine.model.vocabulary.size
    with pytest.raises(InputError, match=f"token {size} is not in the vocabulary"):
        engine.decode([Work(0, np.array([0, size], np.int32))])
    engine.decode([Work(0, np.array([0, size - 1], np.int32))])


def test_more_tokens_than_cells_find_no_room(engine: LlamaEngine) -> None:
    memory = engine.memory
    engine.decode([Work(0, prompt(engine, 2000), logits=False)])
    if memory.free_cells == memory.num_cells:
        assert memory.kind.value == "recurrent", "which needs no cells, however long it reads"
        engine.decode([Work(0, prompt(engine, 2048), logits=False)])
        engine.decode([Work(0, prompt(engine, 2048))])
        assert memory.length(0) == 6096 > memory.num_cells
        return
    engine.decode([Work(1, prompt(engine, 2000), logits=False)])
    before = standing(engine)
    room = memory.num_cells - 4000
    with pytest.raises(NoRoomError, match=f"{room + 1} tokens do not fit in the {room} free cells"):
        engine.decode([Work(0, prompt(engine, room)), Work(2, prompt(engine, 1))])
    assert standing(engine) == before
    engine.decode([Work(0, prompt(engine, room))])
    assert memory.free_cells == 0


def test_a_batch_that_failed_has_no_logits(engine: LlamaEngine) -> None:
    """Not those of the batch before, and no abort of the process either."""
    sampler = Sampler(engine.model, Sampling())
    for _ in range(2):
        (row,) = engine.decode([Work(0, prompt(engine, 5), all_logits=True)])
        sampler.sample(engine.context, row)
        engine.cancel()
        with pytest.raises(EngineError):
            engine.decode([Work(1, prompt(engine, 5), all_logits=True)])
        for old_row in (0, row):
            with pytest.raises(InputError, match="no logits"):
                engine.logits(old_row)
            with pytest.raises(InputError, match="no logits"):
                sampler.sample(engine.context, old_row)
        engine.memory.drop(1)


def test_before_the_first_batch_there_are_no_logits(engine: LlamaEngine) -> None:
    with LlamaEngine.open(engine.model.path, ContextSettings(num_cells=256, threads=1)) as fresh:
        fresh.context.fill_batch(BatchPart(0, prompt(engine, 3), 0))
        with pytest.raises(InputError, match="no logits"):
            fresh.logits(2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_sequences": 0}, "0 sequences"),
        ({"num_sequences": 256}, "256 sequences"),
        ({"kv_type": "f8"}, "unknown KV type 'f8'"),
        ({"num_cells": 0}, "num_cells is 0"),
        ({"batch_tokens": -1}, "batch_tokens is -1"),
        ({"micro_batch_tokens": 2**31}, f"micro_batch_tokens is {2**31}"),
        ({"threads": 0}, "threads is 0"),
    ],
)
@pytest.mark.usefixtures("engine")
def test_settings_out_of_range_are_refused_by_name(settings: dict[str, int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ContextSettings(**settings)  # type: ignore[arg-type]
