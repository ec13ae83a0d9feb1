"""An EAGLE-3 head guesses from what was decoded, however that came, and leaves no trace in the main context."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leftoff.engine.binding.library import load_library
from leftoff.engine.context import ContextSettings
from leftoff.engine.eagle import EagleContext, eagle_problem
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.errors import ModelError
from leftoff.engine.model_settings import ModelSettings
from tests.engine.guessing import MOST, NUM_STEPS, guess, play_beside, restore_and_drop, words
from tests.engine.scenario import read, save
from tests.factory import MTP, model_path, small_vocabulary
from tests.factory.heads import LAYERS, head_bytes, head_path

LENGTH = 203
SETTINGS = ContextSettings(num_cells=1024, num_sequences=3, threads=1, batch_tokens=128, micro_batch_tokens=32)
WHERE = ModelSettings(gpu_layers=0)


@contextmanager
def with_head(architecture: str, kind: str = "shared") -> Iterator[LlamaEngine]:
    with LlamaEngine.open(model_path(architecture), SETTINGS) as engine:
        engine.head = EagleContext(engine.context, engine.memory.replaced, head_path(architecture, kind), WHERE)
        yield engine


@pytest.fixture(scope="module")
def engine() -> Iterator[LlamaEngine]:
    with with_head(MTP) as engine:
        yield engine


@pytest.mark.parametrize("kind", ["shared", "own", "wrong"])
@pytest.mark.parametrize("architecture", [MTP, "llama", "gpt-oss", "qwen3next"])
def test_guesses_never_change_a_state(architecture: str, kind: str) -> None:
    """Of models of attention, with a sliding window, and with a recurrent state."""
    with with_head(architecture, kind) as engine, LlamaEngine.open(model_path(architecture), SETTINGS) as plain:
        tokens = words(LENGTH)
        logits = read(engine, 0, tokens)
        assert np.array_equal(logits, read(plain, 0, tokens))
        num_right = play_beside(engine, plain, logits)
        if architecture == MTP and kind != "wrong":
            assert NUM_STEPS // 4 < num_right < MOST * NUM_STEPS
        if kind == "wrong":
            assert num_right <= 2


def test_what_it_reads_are_the_inputs_of_layers(engine: LlamaEngine) -> None:
    """Joined by the head's own matrix, which is the same for every token, wherever it stands."""
    tokens, context = words(50, 8), engine.head
    assert isinstance(context, EagleContext)
    read(engine, 0, tokens)
    hidden = context._followed[0].hidden
    assert hidden.shape == (50, len(LAYERS) * 64)
    joined, matrix = context._joined(hidden), np.random.default_rng(0).standard_normal((64, 3 * 64), np.float32)
    assert joined is not None
    np.testing.assert_allclose(joined, hidden @ (0.1 * 192**-0.5 * matrix).T, atol=0.02)
    engine.memory.drop(0)


@pytest.mark.parametrize("logits", [True, False])
@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_guesses_do_not_depend_on_how_the_tokens_came(engine: LlamaEngine, chunk: int, logits: bool) -> None:
    tokens = words(LENGTH, 2)
    token = int(read(engine, 0, tokens).argmax())
    expected = guess(engine, token)
    engine.memory.drop(0)
    for start in range(0, LENGTH, chunk):
        engine.decode([Work(0, tokens[start : start + chunk], logits=logits)])
    assert guess(engine, token) == guess(engine, token) == expected != []
    engine.memory.drop(0)


def test_what_was_taken_back_leaves_no_trace(engine: LlamaEngine) -> None:
    tokens = words(LENGTH, 3)
    guesses = []
    for is_drafted in (False, True):
        read(engine, 0, tokens)
        if is_drafted:
            work = Work(0, np.concatenate([tokens[:2], words(4, 100)]), num_drafted=4)
            engine.decode([work])
            engine.settle(work, 2)
        read(engine, 0, tokens[: LENGTH + 2 - engine.memory.length(0)])
        guesses.append(guess(engine, int(tokens[5])))
        engine.memory.drop(0)
    assert guesses[0] == guesses[1] != []


@pytest.mark.parametrize("architecture", [MTP, "llama"])
def test_beside_others_it_reads_the_same(architecture: str) -> None:
    """Rows of several sequences come in the order of the batch, also where llama.cpp splits it by sequences."""
    with with_head(architecture) as engine:
        tokens, context = words(60, 4), engine.head
        assert context is not None
        read(engine, 0, tokens)
        alone = context._followed[0].hidden.copy()
        engine.memory.drop(0)
        for start in range(0, 60, 20):
            others = [Work(seq, words(5 * seq, seq + start), logits=False) for seq in (1, 2)]
            engine.decode([others[0], Work(0, tokens[start : start + 20]), others[1]])
        np.testing.assert_allclose(context._followed[0].hidden, alone, atol=0.05 * np.abs(alone).max())


def test_what_is_restored_or_dropped_is_not_guessed_from(engine: LlamaEngine) -> None:
    restore_and_drop(engine, words(LENGTH, 6))


def test_a_full_context_is_emptied(caplog: pytest.LogCaptureFixture) -> None:
    with LlamaEngine.open(model_path(MTP), SETTINGS) as engine:
        engine.context.settings = replace(SETTINGS, num_cells=256)
        engine.head = EagleContext(engine.context, engine.memory.replaced, head_path(MTP), WHERE)
        tokens = words(400, 7)
        read(engine, 0, tokens)
        assert "is emptied" in caplog.text
        assert guess(engine, int(tokens[0])) != [], "it goes on with what came later"


@pytest.mark.parametrize("architecture", [MTP, "llama"])
def test_paused_it_follows_nothing_and_leaves_no_trace(architecture: str) -> None:
    with with_head(architecture) as engine, LlamaEngine.open(model_path(architecture), SETTINGS) as plain:
        head, tokens = engine.head, words(LENGTH, 9)
        assert head is not None
        for number, start in enumerate(range(0, LENGTH, 20)):
            head.attend(is_worth_it=number % 3 == 0)
            found, expected = (read(each, 0, tokens[start : start + 20]) for each in (engine, plain))
            assert np.array_equal(found, expected)
            assert (guess(engine, int(tokens[0])) != []) is (number % 3 == 0)
        assert save(engine, 0).content == save(plain, 0).content


def test_closed_it_asks_the_main_context_for_nothing() -> None:
    with with_head("llama") as engine, LlamaEngine.open(model_path("llama"), SETTINGS) as plain:
        for each in (engine, plain):
            read(each, 0, words(20))
        engine.close_head()
        assert engine.head is None
        assert np.array_equal(read(engine, 0, words(30)), read(plain, 0, words(30)))


def test_why_a_head_is_refused(tmp_path: Path) -> None:
    library, path = load_library(), tmp_path / "head.gguf"

    def problem(model: str, content: bytes) -> str:
        path.write_bytes(content)
        return eagle_problem(library, model_path(model), path)

    whole, own = head_bytes("llama", "shared"), head_bytes("llama", "own")
    assert problem("llama", whole) == problem("llama", own) == ""
    assert "mamba2 was not tried yet" in problem("mamba2", whole)
    assert "cannot be examined" in problem("llama", whole[:3000])
    assert "cannot be examined" in eagle_problem(library, model_path("llama"), model_path("llama"))
    assert "it has not one layer" in problem("llama", whole.replace(b"blk.0.attn_q.", b"blk.1.attn_q."))
    last = np.array(small_vocabulary().words[-1:], np.int64).tobytes()
    at = own.rindex(last)
    assert "is damaged" in problem("llama", own[:at] + np.array([1 << 40], np.int64).tobytes() + own[at + 8 :])


def test_a_head_for_layers_that_the_model_lacks_is_refused(tmp_path: Path) -> None:
    path, layers = tmp_path / "head.gguf", np.array(LAYERS, np.uint32)
    data = head_bytes("llama", "shared")
    path.write_bytes(data.replace(layers.tobytes(), (layers + 3).tobytes(), 1))
    with LlamaEngine.open(model_path("llama"), SETTINGS) as engine:
        with pytest.raises(ModelError, match=r"inputs of the layers \[4, 5, 6\], of 4"):
            EagleContext(engine.context, engine.memory.replaced, path, WHERE)
        read(engine, 0, words(20))
