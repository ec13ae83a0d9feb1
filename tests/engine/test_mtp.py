"""The next-token layer guesses from what was decoded, however that came, and leaves no trace in the main context."""

import ctypes as C
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leftoff.engine.binding.library import load_library
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.measure import measure_head
from leftoff.engine.mtp import mtp_problem
from tests.engine.guessing import MOST, MTP_SETTINGS, NUM_STEPS, guess, play_beside, with_layer, words
from tests.engine.scenario import read
from tests.factory import MTP, model_path

LENGTH = 203


@pytest.fixture(scope="module")
def engine() -> Iterator[LlamaEngine]:
    with with_layer() as engine:
        yield engine


@pytest.fixture(scope="module")
def plain() -> Iterator[LlamaEngine]:
    """The same model without its next-token layer."""
    with LlamaEngine.open(model_path(MTP), MTP_SETTINGS) as engine:
        yield engine


def test_guesses_are_often_right_and_never_change_a_state(engine: LlamaEngine, plain: LlamaEngine) -> None:
    tokens = words(LENGTH)
    logits = read(engine, 0, tokens)
    np.testing.assert_allclose(logits, read(plain, 0, tokens), atol=0.01)
    num_right = play_beside(engine, plain, logits)
    assert NUM_STEPS // 2 < num_right < MOST * NUM_STEPS
    engine.memory.drop(0)
    plain.memory.drop(0)


def test_beside_others_it_follows_replies(engine: LlamaEngine) -> None:
    tokens = words(LENGTH, 4)
    read(engine, 0, tokens)
    expected = guess(engine, int(tokens[0]))
    engine.memory.drop(0)
    read(engine, 0, tokens[:-3])
    read(engine, 1, words(50, 5))
    for index in range(LENGTH - 3, LENGTH):
        engine.decode([Work(1, words(20, index), logits=False), Work(0, tokens[index : index + 1])])
    assert guess(engine, int(tokens[0])) == expected
    assert guess(engine, int(tokens[0]), seq=1) == [], "of a piece of a prompt beside others nothing is known"
    read(engine, 1, tokens[:1])
    assert len(guess(engine, int(tokens[0]), seq=1)) == 3
    engine.memory.drop(0)
    engine.memory.drop(1)


def test_paused_it_follows_nothing(engine: LlamaEngine, plain: LlamaEngine) -> None:
    head, tokens = engine.head, words(LENGTH, 9)
    assert head is not None
    for is_followed in (True, False, True):
        head.attend(is_worth_it=is_followed)
        found, expected = (read(each, 0, tokens[:50]) for each in (engine, plain))
        np.testing.assert_allclose(found, expected, atol=0.01)
        assert (guess(engine, int(tokens[0])) != []) is is_followed
        if not is_followed:
            assert np.array_equal(found, expected), "the main context computes as if there were no layer"
    for each in (engine, plain):
        each.memory.drop(0)


def test_without_its_context_the_engine_goes_on() -> None:
    with with_layer() as engine:
        measured = measure_head(engine)
        assert 0 < measured.step_ms < 1000
        assert 0 <= measured.wake_ms < 1000
        read(engine, 0, words(20))
        engine.close_head()
        assert engine.head is None
        read(engine, 0, words(20))


def test_why_there_are_no_drafts(tmp_path: Path) -> None:
    library, path = load_library(), model_path(MTP)
    assert mtp_problem(library, path) == ""
    assert mtp_problem(library, model_path("qwen35")) == "there is no MTP layer in the model file"
    without = replace(library, dll=C.CDLL(None))
    assert "lacks llama_set_embeddings_nextn" in mtp_problem(without, path)
    damaged = tmp_path / "cut.gguf"
    damaged.write_bytes(path.read_bytes()[:3000])
    assert "cannot be examined" in mtp_problem(library, damaged)
    other = tmp_path / "other.gguf"
    data = path.read_bytes()
    other.write_bytes(data.replace(b"\x06\0\0\0\0\0\0\0qwen35", b"\x06\0\0\0\0\0\0\0llama4", 1))
    assert "MTP layer of llama4 was not tried yet" in mtp_problem(library, other)
