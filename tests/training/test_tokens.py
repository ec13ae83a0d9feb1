"""The tokenizer: loses nothing, agrees with the engine's, and rows are packed without splitting anything."""

from itertools import islice
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tokenizers", reason="training needs tokenizers: pip install 'leftoff[training]'")

from leftoff.engine.model import Model
from tests.training.reference import random_parameters
from training.coined import rare_words
from training.convert import convert
from training.corpus import IGNORED, READ, SAID, pack
from training.generate import documents
from training.shape import MICRO
from training.thinking import Document
from training.tokens import END_OF_TEXT, THINK, TURN_END, TURN_START, tokenizer

TEXTS = [
    "My cat is Zorvax-7.",
    "  two  spaces\n\n\nand lines\t",
    "naïve café €12,50 日本 🦊",
    "<|im_start|>user\n<think>",
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_comes_back_as_it_was(text: str) -> None:
    ids = tokenizer().encode(text, add_special_tokens=False).ids
    assert tokenizer().decode(ids, skip_special_tokens=False) == text


def test_a_word_splits_alike_with_and_without_a_space_before_it() -> None:
    """So that a word of a sentence is copied into quotation marks piece by piece."""
    words = ["Estonian", "typewriter", "guest", "Ottilie", *rare_words().common[::50], *rare_words().proper[::50]]
    for word in words:
        plain, spaced = (tokenizer().encode(text, add_special_tokens=False).tokens for text in (word, f" {word}"))
        assert "".join(spaced) == "Ġ" + "".join(plain)
        assert [piece for piece in (spaced[0][1:], *spaced[1:]) if piece] == plain


def test_the_special_tokens_have_the_ids_the_code_says() -> None:
    names = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>")
    assert [tokenizer().token_to_id(name) for name in names] == [END_OF_TEXT, TURN_START, TURN_END, THINK]


def test_the_engine_splits_text_the_same_way(tmp_path: Path) -> None:
    convert(random_parameters(MICRO), MICRO, tmp_path / "micro.gguf")
    texts = [*TEXTS, *(document.text for document in islice(documents(seed=11), 40))]
    model = Model(tmp_path / "micro.gguf")
    try:
        for text in texts:
            expected = tokenizer().encode(text, add_special_tokens=False).ids
            assert model.vocabulary.tokenize(text, parse_special=True).tolist() == expected
    finally:
        model.close()


def test_rows_hold_every_document_whole() -> None:
    made = list(islice(documents(seed=5), 60))
    rows = pack(made, 4097)
    text = "\0".join(tokenizer().decode(row, skip_special_tokens=False) for row in rows.tokens.tolist())
    fitting = [document.text for document in made if len(tokenizer().encode(document.text).ids) < 4096]
    assert all(document in text for document in fitting)
    assert (rows.weights > IGNORED).mean() > 0.7


def test_only_replies_are_to_be_said() -> None:
    text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello<|im_end|>\n"
    rows = pack([Document(text)], 32)
    said = rows.tokens[rows.weights == SAID].tolist()
    assert tokenizer().decode(said, skip_special_tokens=False) == "Hello<|im_end|>\n"
    silent = pack([Document(text, only_thinking=True)], 32)
    assert np.unique(silent.weights).tolist() == [IGNORED, READ]
