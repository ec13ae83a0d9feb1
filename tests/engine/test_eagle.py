"""An EAGLE-3 head guesses from what was decoded, however that came, and leaves no trace in the main context."""

from pathlib import Path

import numpy as np
import pytest

from leftoff.engine.binding.library import load_library
from leftoff.engine.eagle import EagleContext, eagle_problem
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.errors import ModelError
from tests.engine.guessing import EAGLE_SETTINGS, HEAD_DEVICES, MOST, NUM_STEPS, guess, play_beside, with_head, words
from tests.engine.scenario import read, save
from tests.factory import MTP, model_path, small_vocabulary
from tests.factory.heads import LAYERS, head_bytes

LENGTH = 101


@pytest.mark.parametrize("kind", ["shared", "own", "wrong"])
@pytest.mark.parametrize("architecture", [MTP, "llama", "gpt-oss", "qwen3next"])
def test_guesses_never_change_a_state(architecture: str, kind: str) -> None:
    """Of models of attention, with a sliding window, and with a recurrent state."""
    with with_head(architecture, kind) as engine, LlamaEngine.open(model_path(architecture), EAGLE_SETTINGS) as plain:
        tokens = words(LENGTH)
        logits = read(engine, 0, tokens)
        assert np.array_equal(logits, read(plain, 0, tokens))
        num_right = play_beside(engine, plain, logits)
        if architecture == MTP and kind != "wrong":
            assert NUM_STEPS // 4 < num_right < MOST * NUM_STEPS
        if kind == "wrong":
            assert num_right <= 2


def test_what_it_reads_are_the_inputs_of_layers() -> None:
    """Joined by the head's own matrix, which is the same for every token, wherever it stands."""
    with with_head(MTP) as engine:
        context = engine.head
        assert isinstance(context, EagleContext)
        read(engine, 0, words(50, 8))
        hidden = context._followed[0].hidden
        assert hidden.shape == (50, len(LAYERS) * 64)
        joined, matrix = context._joined(hidden), np.random.default_rng(0).standard_normal((64, 3 * 64), np.float32)
        assert joined is not None
        np.testing.assert_allclose(joined, hidden @ (0.1 * 192**-0.5 * matrix).T, atol=0.02)


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


@pytest.mark.parametrize("architecture", [MTP, "llama"])
def test_paused_it_follows_nothing_and_leaves_no_trace(architecture: str) -> None:
    with with_head(architecture) as engine, LlamaEngine.open(model_path(architecture), EAGLE_SETTINGS) as plain:
        head, tokens = engine.head, words(LENGTH, 9)
        assert head is not None
        for number, start in enumerate(range(0, LENGTH, 20)):
            head.attend(is_worth_it=number % 3 == 0)
            found, expected = (read(each, 0, tokens[start : start + 20]) for each in (engine, plain))
            assert np.array_equal(found, expected)
            assert (guess(engine, int(tokens[0])) != []) is (number % 3 == 0)
        assert save(engine, 0).content == save(plain, 0).content


def test_closed_it_asks_the_main_context_for_nothing() -> None:
    with with_head("llama") as engine, LlamaEngine.open(model_path("llama"), EAGLE_SETTINGS) as plain:
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
    with LlamaEngine.open(model_path("llama"), EAGLE_SETTINGS) as engine:
        with pytest.raises(ModelError, match=r"inputs of the layers \[4, 5, 6\], of 4"):
            EagleContext(engine.context, engine.memory.replaced, path, HEAD_DEVICES)
        read(engine, 0, words(20))
