"""Text becomes tokens and comes back, byte for byte; ids that are none are refused."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leftoff.engine.errors import InputError
from leftoff.engine.model import Model
from leftoff.engine.vocabulary import Vocabulary
from tests.factory import Scale, model_path, small_vocabulary
from tests.factory.gguf import Value, write_model
from tests.factory.parts import attention, body
from tests.factory.vocabulary import CONTROL, MARKERS


@pytest.fixture(scope="module")
def vocabulary() -> Iterator[Vocabulary]:
    model = Model(model_path("llama"))
    yield model.vocabulary
    model.close()


@settings(deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back(vocabulary: Vocabulary, text: str) -> None:
    for parse_special in (True, False):
        assert vocabulary.detokenize(vocabulary.tokenize(text, parse_special=parse_special)) == text.encode()


@pytest.mark.parametrize("text", ["", "the river", "a\x00b", "Grüße, 漢字", "👩‍👩‍👧 and 🇳🇿", "x" * 5000, "🙂" * 500])
def test_unusual_text_comes_back(vocabulary: Vocabulary, text: str) -> None:
    assert vocabulary.detokenize(vocabulary.tokenize(text)).decode() == text


def test_a_known_word_is_one_token(vocabulary: Vocabulary) -> None:
    (token,) = vocabulary.tokenize(" river").tolist()
    assert vocabulary.piece(token) == b" river"
    assert token in small_vocabulary().words


def test_special_tokens_are_read_only_when_asked_for(vocabulary: Vocabulary) -> None:
    for text in (*CONTROL, *MARKERS):
        (token,) = vocabulary.tokenize(text).tolist()
        assert small_vocabulary().tokens[token] == text
        assert vocabulary.piece(token) == text.encode()
    for text in CONTROL:
        spelled = vocabulary.tokenize(text, parse_special=False)
        assert spelled.size > 1
        assert not {*spelled.tolist()} & {*vocabulary.tokenize("".join(CONTROL)).tolist()}
        assert vocabulary.detokenize(spelled).decode() == text


def test_a_text_is_parted_at_the_names_of_control_tokens(vocabulary: Vocabulary) -> None:
    start, end = vocabulary.tokenize("<|im_start|><|im_end|>").tolist()
    assert [*vocabulary.control_parts("<|im_start|>the <|im_end|><|im_end|> river")] == [
        ("<|im_start|>", start),
        ("the ", None),
        ("<|im_end|>", end),
        ("<|im_end|>", end),
        (" river", None),
    ]
    assert [*vocabulary.control_parts("the river")] == [("the river", None)]
    assert [*vocabulary.control_parts("")] == []


def test_a_piece_may_be_half_a_character(vocabulary: Vocabulary) -> None:
    pieces = [vocabulary.piece(token) for token in vocabulary.tokenize("🙂").tolist()]
    assert len(pieces) > 1
    for piece in pieces:
        with pytest.raises(UnicodeDecodeError):
            piece.decode()
    assert b"".join(pieces).decode() == "🙂"


def test_the_text_of_a_token_is_shown_whatever_its_bytes(vocabulary: Vocabulary) -> None:
    tokens = vocabulary.tokenize("<|im_end|> river🙂").tolist()
    assert [*map(vocabulary.token_text, tokens)] == ["<|im_end|>", " river", *"\N{REPLACEMENT CHARACTER}" * 4]
    assert vocabulary.token_text(None) == ""


def test_every_byte_is_a_piece(vocabulary: Vocabulary) -> None:
    assert sorted(map(vocabulary.piece, range(256))) == [bytes([byte]) for byte in range(256)]


def test_a_long_piece_is_whole(tmp_path: Path) -> None:
    long = f"<|{'very' * 100}_long|>"
    metadata = small_vocabulary().metadata()
    types = metadata["tokenizer.ggml.token_type"]
    assert isinstance(types, list)
    longer: dict[str, Value] = {
        "tokenizer.ggml.tokens": [*small_vocabulary().tokens, long],
        "tokenizer.ggml.token_type": [*map(int, types), 4],
    }
    shape = {f"llama.{key}": value for key, value in (body(Scale(), layers=1) | attention(Scale())).items()}
    path = tmp_path / "long.gguf"
    write_model(
        path,
        {"general.architecture": "llama"} | metadata | longer | shape,
        lambda tensor: np.zeros((tensor.rows, tensor.columns), np.float32),
    )
    model = Model(path)
    (token,) = model.vocabulary.tokenize(long).tolist()
    assert model.vocabulary.piece(token) == long.encode()
    model.close()


@pytest.mark.parametrize("token", [-1, -(2**31), 2**31 - 1, 2**31, 2**80])
def test_an_id_out_of_range_is_refused(vocabulary: Vocabulary, token: int) -> None:
    with pytest.raises(InputError, match=f"token {token} is not in the vocabulary of {vocabulary.size} tokens"):
        vocabulary.piece(token)


def test_the_first_id_beyond_the_vocabulary_is_refused(vocabulary: Vocabulary) -> None:
    size = vocabulary.size
    vocabulary.check(np.array([0, size - 1], np.int32))
    vocabulary.check(np.array([], np.int32))
    for bad in ([0, size], [-1, 0], [0, size, 1]):
        with pytest.raises(InputError, match=f"vocabulary of {size} tokens"):
            vocabulary.check(np.array(bad, np.int32))
    with pytest.raises(InputError, match=f"token {size} "):
        vocabulary.detokenize(np.array([0, size], np.int32))


def test_a_reply_ends_at_the_end_of_a_message_or_text(vocabulary: Vocabulary) -> None:
    ends = {vocabulary.piece(token) for token in vocabulary.end_tokens}
    assert ends == {b"<|im_end|>", b"<|endoftext|>"}
    assert vocabulary.eos in vocabulary.end_tokens
    assert vocabulary.bos is not None
    assert vocabulary.piece(vocabulary.bos) == b"<|endoftext|>"


def test_what_the_model_wants_at_the_ends_is_added_only_when_asked_for(vocabulary: Vocabulary) -> None:
    plain = vocabulary.tokenize("the river").tolist()
    added = vocabulary.tokenize("the river", add_special=True).tolist()
    start = [vocabulary.bos] if vocabulary.adds_bos else []
    end = [vocabulary.eos] if vocabulary.adds_eos else []
    assert added == [*start, *plain, *end]
