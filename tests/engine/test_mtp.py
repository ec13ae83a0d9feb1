"""The next-token layer guesses from what was decoded, however that came, and leaves no trace in the main context."""

import ctypes as C
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leftoff.engine.binding.library import load_library
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.measure import measure_head
from leftoff.engine.model_settings import ModelSettings
from leftoff.engine.mtp import MtpContext, mtp_problem
from tests.engine.guessing import MOST, NUM_STEPS, guess, play_beside, restore_and_drop, words
from tests.engine.scenario import read
from tests.factory import MTP, model_path

LENGTH = 203
SETTINGS = ContextSettings(num_cells=1024, num_sequences=3, threads=1)


@pytest.fixture(scope="module")
def engine() -> Iterator[LlamaEngine]:
    with LlamaEngine.open(model_path(MTP), SETTINGS, model_settings=ModelSettings(mtp=True)) as engine:
        yield engine


@pytest.fixture(scope="module")
def plain() -> Iterator[LlamaEngine]:
    """The same model without its next-token layer."""
    with LlamaEngine.open(model_path(MTP), SETTINGS) as engine:
        yield engine


def test_guesses_are_often_right_and_never_change_a_state(engine: LlamaEngine, plain: LlamaEngine) -> None:
    tokens = words(LENGTH)
    logits = read(engine, 0, tokens)
    np.testing.assert_allclose(logits, read(plain, 0, tokens), atol=0.01)
    num_right = play_beside(engine, plain, logits)
    assert NUM_STEPS // 2 < num_right < MOST * NUM_STEPS
    engine.memory.drop(0)
    plain.memory.drop(0)


@pytest.mark.parametrize("logits", [True, False])
@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_guesses_do_not_depend_on_how_the_tokens_came(engine: LlamaEngine, chunk: int, logits: bool) -> None:
    tokens = words(LENGTH, 2)
    token = int(read(engine, 0, tokens, LENGTH).argmax())
    expected = guess(engine, token)
    engine.memory.drop(0)
    for start in range(0, LENGTH, chunk):
        engine.decode([Work(0, tokens[start : start + chunk], logits=logits)])
    assert guess(engine, token) == guess(engine, token) == expected
    engine.memory.drop(0)


def test_what_was_taken_back_leaves_no_trace(engine: LlamaEngine) -> None:
    tokens = words(LENGTH, 3)
    guesses = []
    for offset in (0, 1, 2):
        read(engine, 0, tokens)
        if offset:
            wrong = words(4, 100 + offset)
            work = Work(0, np.concatenate([tokens[:2], wrong]), num_drafted=4)
            engine.decode([work])
            engine.settle(work, 2)
            read(engine, 0, tokens[: LENGTH + 2 - engine.memory.length(0)])
        else:
            read(engine, 0, tokens[:2])
        guesses.append(guess(engine, int(tokens[5])))
        engine.memory.drop(0)
    assert guesses[0] == guesses[1] == guesses[2] != []


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


def test_what_is_restored_or_dropped_is_not_guessed_from(engine: LlamaEngine) -> None:
    restore_and_drop(engine, words(LENGTH, 6))


def test_a_full_context_is_emptied(engine: LlamaEngine, caplog: pytest.LogCaptureFixture) -> None:
    with LlamaEngine.open(model_path(MTP), SETTINGS, model_settings=ModelSettings(mtp=True)) as other:
        other.close_head()
        other.context.settings = replace(SETTINGS, num_cells=256)
        other.head = MtpContext(other.context, other.memory.replaced)
        tokens = words(400, 7)
        logits = read(other, 0, tokens)
        assert "is emptied" in caplog.text
        assert guess(other, int(tokens[0])) != [], "it goes on with what came later"
    np.testing.assert_allclose(logits, read(engine, 0, tokens), atol=0.01)
    engine.memory.drop(0)


def test_without_its_context_the_engine_goes_on() -> None:
    with LlamaEngine.open(model_path(MTP), SETTINGS, model_settings=ModelSettings(mtp=True)) as engine:
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
