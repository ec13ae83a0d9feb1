"""Sequences of a recurrent model are computed together, whatever their numbers."""

import numpy as np
import pytest

from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.memory.arena import view_of
from leftoff.types import Logits, Tokens
from tests.engine.scenario import prompt, read

LENGTH = 40


def logits_of_a_step(engine: LlamaEngine, seqs: list[int], tokens: Tokens) -> list[Logits]:
    """A token of each sequence in one batch, after prompts that differ."""
    engine.memory.clear()
    for number, seq in enumerate(seqs):
        read(engine, seq, tokens[number : number + LENGTH])
    rows = engine.decode([Work(seq, tokens[number : number + 1]) for number, seq in enumerate(seqs)])
    return [engine.logits(row).copy() for row in rows]


@pytest.mark.parametrize("engine", ["mamba2", "rwkv7"], indirect=True)
@pytest.mark.parametrize("seqs", [[1, 0, 3], [3, 1, 2], [0, 2, 3], [3, 2, 1]])
def test_the_numbers_of_sequences_change_no_bit(engine: LlamaEngine, seqs: list[int]) -> None:
    tokens = prompt(engine, LENGTH + 4)
    expected = logits_of_a_step(engine, [0, 1, 2], tokens)
    for found, wanted in zip(logits_of_a_step(engine, seqs, tokens), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("engine", ["mamba2", "rwkv7"], indirect=True)
def test_sequences_keep_their_states_when_others_are_lined_up(engine: LlamaEngine) -> None:
    tokens = prompt(engine, LENGTH + 4)
    alone = [read(engine, seq, tokens[seq : seq + LENGTH]) for seq in range(4)]
    states = [engine.memory.save_snapshot(seq) for seq in range(4)]
    engine.context.line_up([3, 1])
    engine.context.line_up([2, 0, 1])
    engine.context.line_up([1, 3, 0, 2])
    for seq, state in enumerate(states):
        np.testing.assert_array_equal(view_of(engine.memory.save_snapshot(seq).data), view_of(state.data))
        engine.memory.restore(seq, LENGTH, snapshot=state)
        engine.memory.drop(seq)
        np.testing.assert_array_equal(read(engine, seq, tokens[seq : seq + LENGTH]), alone[seq])
