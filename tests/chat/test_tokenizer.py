"""Tokens of the segments are the tokens of the whole, and a turn costs only its new text."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leftoff.chat.conversation import Conversation
from leftoff.chat.prompts import PromptMaker
from leftoff.chat.template.render import MessageDict
from leftoff.chat.tokenizer import SegmentTokenizer
from leftoff.engine.model import Model
from tests.chat.conversations import RULES, assistant, user
from tests.chat.shared import SHARED, TINY, needs
from tests.chat.vocabularies import inseparable, sentencepiece
from tests.factory import model_path

# Pieces that meet badly: white space at borders, halves of control tokens, markers, other scripts.
PIECES = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "[INST]", "[/INST]", "</s>", "<|im_", "end|>", "<think>"]
PIECES += [
    "</think>\n\n",
    "user\n",
    " the river",
    "the",
    " ",
    "\n",
    "\n\n",
    "  ",
    "12345",
    "🙂",
    "漢字",
    "é",
    "\t",
    "'s",
]
texts = st.lists(st.sampled_from(PIECES) | st.text(st.characters(codec="utf-8"), max_size=8), max_size=24).map("".join)

NAMES = ["factory", "sentencepiece", "inseparable", pytest.param("tiny", marks=needs(TINY))]


@pytest.fixture(scope="module", params=NAMES)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    folder = tmp_path_factory.mktemp("models")
    paths = {
        "factory": lambda: model_path("llama"),
        "sentencepiece": lambda: sentencepiece(folder / "spm.gguf"),
        "inseparable": lambda: inseparable(folder / "inseparable.gguf"),
        "tiny": lambda: TINY,
    }
    model = Model(paths[request.param]())
    yield model
    model.close()


@pytest.fixture(scope="module")
def tokenizer(model: Model) -> SegmentTokenizer:
    return SegmentTokenizer(model.vocabulary)


@settings(deadline=None, max_examples=150)
@given(text=texts)
def test_the_parts_are_the_whole(model: Model, tokenizer: SegmentTokenizer, text: str) -> None:
    tokenised = tokenizer.tokenise(text)
    assert tokenised.tokens.tolist() == model.vocabulary.tokenize(text).tolist()
    assert "".join(tokenised.texts) == text


@settings(deadline=None, max_examples=100)
@given(text=texts, data=st.data())
def test_a_position_is_the_last_token_that_ends_by_there(
    model: Model, tokenizer: SegmentTokenizer, text: str, data: st.DataObject
) -> None:
    offsets = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    tokenised = tokenizer.tokenise(text)
    pieces = [model.vocabulary.piece(token) for token in tokenised.tokens.tolist()]
    for offset, position in zip(offsets, tokenised.positions(offsets), strict=True):
        assert 0 <= position <= len(pieces)
        before = b"".join(pieces[:position])
        # SentencePiece adds a space to every part; leaving them out, the text is the same.
        assert text[:offset].encode().replace(b" ", b"").startswith(before.replace(b" ", b""))
    assert tokenised.positions([0, len(text)])[-1] == len(pieces)


def test_only_a_vocabulary_that_falls_apart_is_taken_apart(model: Model, tokenizer: SegmentTokenizer) -> None:
    inseparable_pair = model.vocabulary.tokenize("<|im_end|><|im_end|>").size == 1
    assert tokenizer.is_segmented is not inseparable_pair


def history(num_turns: int) -> list[MessageDict]:
    turns = [
        (user(f"Question {n}: where is ship {n}?"), assistant(f"Ship {n} lies at pier {n}.")) for n in range(num_turns)
    ]
    return [RULES, *(message for turn in turns for message in turn)]


@pytest.mark.parametrize("num_turns", [1, 10, 100])
def test_a_turn_costs_only_its_new_text(num_turns: int) -> None:
    model = Model(model_path("llama"))
    maker = PromptMaker(model)
    maker.from_conversation(Conversation([*history(num_turns), user("And now?")]))
    calls, characters = maker.tokenizer.num_calls, maker.tokenizer.num_characters
    reply, question = "It has sailed.", "Since when?"
    longer = [*history(num_turns), user("And now?"), assistant(reply), user(question)]
    prompt = maker.from_conversation(Conversation(longer))
    assert maker.tokenizer.num_calls - calls <= 4
    assert maker.tokenizer.num_characters - characters <= len(reply) + len(question) + 40
    assert prompt.tokens.tolist() == model.vocabulary.tokenize(maker.render(Conversation(longer)).text).tolist()
    # the same once more costs nothing
    calls = maker.tokenizer.num_calls
    maker.from_conversation(Conversation(longer))
    assert maker.tokenizer.num_calls == calls
    model.close()


def test_the_memory_is_bounded_and_what_was_used_last_stays() -> None:
    model = Model(model_path("llama"))
    tokenizer = SegmentTokenizer(model.vocabulary, remembered_bytes=50_000)
    kept = "the old bridge"
    for number in range(500):
        tokenizer.tokenise(f"{kept}<|im_end|>another river, number {number}")
        assert tokenizer.num_bytes <= 50_000
    calls = tokenizer.num_calls
    assert calls == 500 + 2  # what comes every time was tokenised once
    tokenizer.tokenise("another river, number 0")
    assert tokenizer.num_calls == calls + 1
    huge = "the river " * 10_000
    assert np.array_equal(tokenizer.tokenise(huge).tokens, model.vocabulary.tokenize(huge))
    assert tokenizer.num_bytes <= 50_000
    model.close()


def test_a_prompt_begins_with_what_the_model_wants_once(tmp_path: Path) -> None:
    model = Model(sentencepiece(tmp_path / "spm.gguf"))
    with_it = PromptMaker(model, "{{ bos_token }}{% for m in messages %}[INST]{{ m.content }}[/INST]{% endfor %}")
    without = PromptMaker(model, "{% for m in messages %}[INST]{{ m.content }}[/INST]{% endfor %}")
    prompts = [maker.from_conversation(Conversation([user("where is the dog")])) for maker in (with_it, without)]
    assert prompts[0].tokens.tolist() == prompts[1].tokens.tolist()
    assert prompts[0].tokens.tolist().count(model.vocabulary.bos or 0) == 1
    assert prompts[0].messages == prompts[1].messages
    assert model.vocabulary.detokenize(prompts[0].tokens[: prompts[0].messages[0].start]) == b"<s>[INST]"
    model.close()


@needs(SHARED / "models" / "rwkv7-tiny.gguf")
def test_a_model_without_a_tokenizer_can_still_be_opened() -> None:
    model = Model(SHARED / "models" / "rwkv7-tiny.gguf")
    assert not PromptMaker(model).tokenizer.is_segmented
    model.close()
