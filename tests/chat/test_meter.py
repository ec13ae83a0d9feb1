"""A text that cannot fit is refused at a small price; one that fits is never refused. Values are counted exactly."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leftoff.chat.meter import TokenMeter, TooManyTokensError, has_more_values
from leftoff.chat.work import GivenUpError, TextWork
from leftoff.engine.model import Model
from leftoff.engine.vocabulary import Vocabulary
from leftoff.types import Tokens
from tests.chat.vocabularies import forgetful, inseparable, sentencepiece, stripping, with_long_token
from tests.factory import model_path

MODELS: dict[str, Callable[[Path], Path]] = {
    "factory": lambda _: model_path("llama"),
    "sentencepiece": sentencepiece,
    "inseparable": inseparable,
    "long token": with_long_token,
    "stripping": stripping,
    "forgetful": forgetful,
}
PIECES = ["<|im_end|>", "[INST]", "the river", " ", " " * 40, " " * 700, "\n\n", "▁", "▁" * 30, "漢字", "é", "é" * 50]
PIECES += ["12345", "x y ", "aaaaaaaa", "<|im_", "🙂"]
texts = st.lists(st.tuples(st.sampled_from(PIECES), st.integers(1, 20)), max_size=12).map(
    lambda parts: "".join(piece * times for piece, times in parts)
)


@pytest.fixture(scope="module", params=MODELS)
def vocabulary(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Vocabulary]:
    model = Model(MODELS[request.param](tmp_path_factory.mktemp("models") / "model.gguf"))
    yield model.vocabulary
    model.close()


@settings(deadline=None, max_examples=25)
@given(text=texts, context_tokens=st.integers(1, 200))
@example(text="<|im_end|>" + " " * 5000, context_tokens=5)
@example(text="é" * 5000, context_tokens=5)
@example(text="▁" * 5000, context_tokens=600)
@example(text=" " * 5000, context_tokens=12)
def test_what_fits_is_not_refused(vocabulary: Vocabulary, text: str, context_tokens: int) -> None:
    num_tokens = vocabulary.tokenize(text).size
    for slice_characters in (100, 1 << 16):
        refused = refused_for(TokenMeter(vocabulary, context_tokens, slice_characters=slice_characters), text)
        assert refused is None or min(num_tokens, refused) >= context_tokens


def refused_for(meter: TokenMeter, text: str) -> int | None:
    """How many tokens it is refused for."""
    try:
        meter.check(text)
    except TooManyTokensError as error:
        return error.num_tokens
    return None


def test_the_longest_token_bounds_the_number_of_tokens(vocabulary: Vocabulary, request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.params["vocabulary"]
    if name in ("stripping", "forgetful"):
        assert vocabulary.longest_text is None
        return
    assert vocabulary.longest_text == max(len(vocabulary.piece(token)) for token in range(vocabulary.size))


class Counting(Vocabulary):
    """A real vocabulary that counts what it is given."""

    num_characters = 0

    def tokenize(self, text: str | bytes, *, add_special: bool = False, parse_special: bool = True) -> Tokens:
        self.num_characters += len(text)
        return super().tokenize(text, add_special=add_special, parse_special=parse_special)


@pytest.fixture
def counting(tmp_path: Path) -> Iterator[Counting]:
    model = Model(with_long_token(tmp_path / "long.gguf"))
    assert model.handle is not None
    yield Counting(model.library, model.handle)
    model.close()


def test_of_a_far_too_long_text_one_slice_is_tokenised(counting: Counting) -> None:
    with pytest.raises(TooManyTokensError):
        TokenMeter(counting, 1000).check("x y " * 1_000_000)
    assert counting.num_characters <= 500**2, "the square of the longest token"


@pytest.mark.parametrize("num_words", [20_000, 60_000, 150_000])
def test_a_refused_text_is_estimated(counting: Counting, num_words: int) -> None:
    text = "the river and the sea, " * (num_words // 5)
    refused = refused_for(TokenMeter(counting, 100), text)
    assert refused == pytest.approx(counting.tokenize(text).size, rel=0.02)


def test_where_one_token_is_very_long_the_count_stops_early(counting: Counting) -> None:
    """500 characters a token say nothing of 400,000 characters for 1,000 tokens."""
    with pytest.raises(TooManyTokensError):
        TokenMeter(counting, 1000).check("x y " * 100_000)
    assert counting.num_characters < 300_000


def test_work_that_was_cancelled_ends_at_the_next_slice(counting: Counting) -> None:
    work = TextWork()

    def check() -> None:
        meter = TokenMeter(counting, 100_000)
        meter.check(" " * 1_000_000)
        work.cancel()
        meter.check(" " * 1_000_000)

    with pytest.raises(GivenUpError):
        work.run(check)
    assert counting.num_characters == 1_000_000


def test_nobody_waits_for_work_that_was_cancelled_before_it_began() -> None:
    work = TextWork()
    work.cancel()
    with pytest.raises(GivenUpError):
        work.run(lambda: pytest.fail("it ran"))


TRICKY = st.text(st.sampled_from('",[]{}\\ab\n'), max_size=12)
VALUES = st.recursive(
    st.none() | st.integers() | TRICKY,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TRICKY, inner, max_size=4),
    max_leaves=12,
)


def separators(value: Any) -> int:  # noqa: ANN401
    """One for each bracket that opens, and one between two members."""
    if not isinstance(value, list | dict):
        return 0
    inner = value if isinstance(value, list) else [*value.values()]
    return max(len(inner), 1) + sum(map(separators, inner))


@given(value=VALUES)
def test_what_stands_in_texts_is_not_counted(value: Any) -> None:  # noqa: ANN401
    data, wanted = json.dumps(value).encode(), separators(value)
    for slice_bytes in (1, 2, 7, 1 << 20):
        assert not has_more_values(data, wanted, slice_bytes=slice_bytes)
        assert wanted == 0 or has_more_values(data, wanted - 1, slice_bytes=slice_bytes)
