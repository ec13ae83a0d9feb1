"""The test models are what other tests rely on them to be: real files whose logits depend on the whole past."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from leftoff.engine.batch import BatchPart
from leftoff.engine.context import Context, ContextSettings
from leftoff.engine.model import Model
from leftoff.types import Logits, Tokens
from tests.factory import ARCHITECTURES, Scale, model_path, small_vocabulary
from tests.factory.parts import WINDOW
from tests.factory.vocabulary import CONTROL, MARKERS

RECURRENT = {"mamba", "mamba2", "rwkv6", "rwkv7"}
HYBRID = {
    *("qwen35", "qwen3next", "kimi-linear", "granitehybrid", "nemotron_h", "falcon-h1", "jamba"),
    *("lfm2", "lfm2-window"),
    # Not recurrent, but the library counts its compressed memory as such, and does not tell of its window.
    "deepseek4",
}
WINDOWED = {"gemma3", "gpt-oss", "lfm2-window"}

TEXTS = ("The cat sat, again: 12 + 3 = 15?\n\n  Naïve café — 漢字 🙂\t", " runs", "", "<think>so</think><|im_end|>\n")
WORDS = np.array(small_vocabulary().words, np.int32)


@dataclass(frozen=True)
class Runner:
    """Runs a model on one sequence."""

    model: Model
    context: Context

    def read(self, tokens: Tokens, start: int = 0) -> Logits:
        """The logits after `tokens`, which begin at position `start`."""
        if start == 0:
            self.context.clear()
        (row,) = self.context.fill_batch(BatchPart(0, tokens, start))
        self.context.decode()
        return self.context.logits(row).copy()

    def reply(self, prompt: Tokens, num_tokens: int) -> Tokens:
        """The greedy continuation of `prompt`."""
        tokens = [int(self.read(prompt).argmax())]
        while len(tokens) < num_tokens:
            last = np.array(tokens[-1:], np.int32)
            tokens.append(int(self.read(last, prompt.size + len(tokens) - 1).argmax()))
        return np.array(tokens, np.int32)


@pytest.fixture(scope="module", params=ARCHITECTURES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def runner(name: str) -> Iterator[Runner]:
    model = Model(model_path(name))
    context = Context(model, ContextSettings(num_cells=512, num_sequences=1, threads=1))
    yield Runner(model, context)
    context.close()
    model.close()


def some_words(num_tokens: int, seed: int) -> Tokens:
    return np.random.default_rng(seed).choice(WORDS, num_tokens)


def with_other_word(tokens: Tokens, position: int) -> Tokens:
    changed = tokens.copy()
    changed[position] = WORDS[0] if tokens[position] != WORDS[0] else WORDS[1]
    return changed


def difference(logits: Logits, reference: Logits) -> float:
    """Root mean square of the change of the words' logits, as a share of their deviation."""
    change = (logits - reference)[WORDS]
    return float(np.sqrt(np.mean(change**2)) / reference[WORDS].std())


def test_memory_is_of_the_expected_kind(name: str, runner: Runner) -> None:
    model = runner.model
    assert model.is_recurrent == (name in RECURRENT)
    assert model.is_hybrid == (name in HYBRID)
    assert model.window == (WINDOW if name in WINDOWED else 0)


def test_model_is_small(name: str) -> None:
    assert model_path(name).stat().st_size < 2_000_000


@pytest.mark.parametrize("text", TEXTS)
def test_text_round_trips(runner: Runner, text: str) -> None:
    tokens = runner.model.vocabulary.tokenize(text)
    assert runner.model.vocabulary.detokenize(tokens).decode() == text


def test_special_tokens_are_one_token_each(runner: Runner) -> None:
    tokens = runner.model.vocabulary.tokenize("".join(CONTROL + MARKERS))
    assert [small_vocabulary().tokens[token] for token in tokens] == [*CONTROL, *MARKERS]


def test_only_the_ends_of_texts_and_messages_end_a_reply(runner: Runner) -> None:
    ends = {small_vocabulary().tokens[token] for token in runner.model.vocabulary.end_tokens}
    assert ends == {"<|endoftext|>", "<|im_end|>"}


def test_model_has_a_chat_template(runner: Runner) -> None:
    assert "<|im_start|>" in (runner.model.chat_template() or "")


@pytest.mark.parametrize("position", [0, 5])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_logits_depend_on_early_tokens(runner: Runner, position: int, seed: int) -> None:
    tokens = some_words(60, seed)
    assert difference(runner.read(with_other_word(tokens, position)), runner.read(tokens)) > 1e-2


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_replies_are_diverse_words_that_tokenize_back(runner: Runner, seed: int) -> None:
    reply = runner.reply(some_words(60, seed), num_tokens=40)
    assert len(set(reply.tolist())) >= 8
    assert runner.model.vocabulary.tokenize(runner.model.vocabulary.detokenize(reply)).tolist() == reply.tolist()


def test_replies_to_different_prompts_differ(runner: Runner) -> None:
    replies = {tuple(runner.reply(some_words(60, seed), num_tokens=10).tolist()) for seed in range(4)}
    assert len(replies) == 4


def test_logits_stay_finite_over_a_long_text(runner: Runner) -> None:
    logits = runner.read(some_words(500, seed=1))
    assert np.isfinite(logits).all()
    assert 1 < logits[WORDS].std() < 10


@pytest.mark.parametrize("name", ["gemma3", "gpt-oss", "deepseek4"], indirect=True)
def test_far_past_acts_from_beyond_the_window(runner: Runner) -> None:
    tokens = some_words(200, seed=1)
    assert difference(runner.read(with_other_word(tokens, 5)), runner.read(tokens)) > 1e-3


def test_model_is_built_once(monkeypatch: pytest.MonkeyPatch) -> None:
    path = model_path("llama")
    monkeypatch.setattr("tests.factory.cache.write_model", None)
    assert model_path("llama") == path


def test_scale_makes_a_larger_model_with_a_longer_context(name: str) -> None:
    large = Model(model_path(name, Scale(width=2, depth=2, context_length=40960)))
    assert large.trained_context == 40960
    assert large.size_bytes > 2 * model_path(name).stat().st_size
    large.close()
