"""Whatever the pace at which tokens come, the text is the same: nothing lost, repeated or out of order."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leftoff.chat.tokenizer import TextStream
from leftoff.engine.model import Model
from leftoff.engine.vocabulary import Vocabulary
from tests.factory import model_path

few = settings(deadline=None, max_examples=200)
any_text = st.text(st.characters(codec="utf-8"), max_size=40) | st.text("ab🙂 ", max_size=40)
any_stops = st.lists(st.text("ab🙂 ", min_size=1, max_size=4), max_size=3).map(tuple)


@pytest.fixture(scope="module")
def vocabulary() -> Iterator[Vocabulary]:
    model = Model(model_path("llama"))
    yield model.vocabulary
    model.close()


@pytest.fixture(scope="module")
def byte_tokens(vocabulary: Vocabulary) -> dict[int, int]:
    return {vocabulary.piece(token)[0]: token for token in range(256)}


def spell(vocabulary: Vocabulary, byte_tokens: dict[int, int], data: bytes, cuts: list[bool]) -> list[int]:
    """Tokens for these bytes: some as the tokenizer says, some byte by byte."""
    tokens: list[int] = []
    for index, token in enumerate(vocabulary.tokenize(data, parse_special=False).tolist()):
        if cuts and cuts[index % len(cuts)]:
            tokens += [byte_tokens[byte] for byte in vocabulary.piece(token)]
        else:
            tokens.append(token)
    return tokens


def read(stream: TextStream, tokens: list[int]) -> list[str]:
    return [*(stream.push(token) for token in tokens), stream.close()]


def expected(text: str, stops: tuple[str, ...]) -> tuple[str, str | None]:
    """Character by character: the first stop string that is complete ends the text."""
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            stop = max(complete, key=len)
            return text[: end - len(stop)], stop
    return text, None


@few
@given(text=any_text, stops=any_stops, cuts=st.lists(st.booleans(), max_size=6))
def test_the_text_is_that_of_its_characters(
    vocabulary: Vocabulary, byte_tokens: dict[int, int], text: str, stops: tuple[str, ...], cuts: list[bool]
) -> None:
    stream = TextStream(vocabulary, stops)
    pieces = read(stream, spell(vocabulary, byte_tokens, text.encode(), cuts))
    assert ("".join(pieces), stream.stop) == expected(text, stops)


@few
@given(data=st.binary(max_size=30), stops=any_stops)
def test_bytes_that_are_no_text_are_replaced_and_the_rest_stays(
    vocabulary: Vocabulary, byte_tokens: dict[int, int], data: bytes, stops: tuple[str, ...]
) -> None:
    stream = TextStream(vocabulary, stops)
    text = "".join(read(stream, [byte_tokens[byte] for byte in data]))
    assert text == expected(data.decode("utf-8", "replace"), stops)[0]


@few
@given(text=any_text, stops=any_stops)
def test_no_more_is_held_back_than_may_be_a_stop(
    vocabulary: Vocabulary, byte_tokens: dict[int, int], text: str, stops: tuple[str, ...]
) -> None:
    stream = TextStream(vocabulary, stops)
    shown = ""
    for size, character in enumerate(text, start=1):
        shown += "".join(stream.push(byte_tokens[byte]) for byte in character.encode())
        if stream.is_stopped:
            break
        held = text[:size][len(shown) :]
        assert text[:size] == shown + held
        assert not held or any(stop.startswith(held) and stop != held for stop in stops)


def test_what_was_held_back_comes_at_the_end(vocabulary: Vocabulary) -> None:
    stream = TextStream(vocabulary, ("river runs dry",))
    tokens = vocabulary.tokenize("the river runs").tolist()
    pieces = [stream.push(token) for token in tokens]
    assert "".join(pieces) == "the "
    assert stream.close() == "river runs"
    assert stream.close() == ""


def test_half_a_character_at_the_end_is_not_lost_silently(vocabulary: Vocabulary, byte_tokens: dict[int, int]) -> None:
    stream = TextStream(vocabulary)
    shown = [stream.push(byte_tokens[byte]) for byte in "a🙂".encode()[:-1]]
    assert shown == ["a", "", "", ""]
    assert stream.close() == "\ufffd"


def test_a_stop_across_tokens_ends_the_text_before_it(vocabulary: Vocabulary) -> None:
    stream = TextStream(vocabulary, ("hill to",))
    tokens = vocabulary.tokenize("down from the hill to the town").tolist()
    assert "".join(read(stream, tokens)) == "down from the "
    assert stream.stop == "hill to"
    assert stream.push(tokens[0]) == ""


def test_of_two_stops_in_one_token_the_first_complete_one_counts(vocabulary: Vocabulary) -> None:
    (token,) = vocabulary.tokenize(" river").tolist()
    for stops in (("iver", "v"), ("v", "iver")):
        stream = TextStream(vocabulary, stops)
        assert "".join(read(stream, [token])) == " ri"
        assert stream.stop == "v"


def test_control_tokens_are_shown_only_when_asked_for(vocabulary: Vocabulary) -> None:
    tokens = vocabulary.tokenize("the<|im_end|> river").tolist()
    assert "".join(read(TextStream(vocabulary), tokens)) == "the river"
    stream = TextStream(vocabulary, shown=vocabulary.control_tokens)
    assert "".join(read(stream, tokens)) == "the<|im_end|> river"


def test_an_empty_stop_string_stops_nothing(vocabulary: Vocabulary) -> None:
    assert "".join(read(TextStream(vocabulary, ("",)), vocabulary.tokenize("the river").tolist())) == "the river"
