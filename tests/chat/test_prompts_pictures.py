"""Where a picture's marker stands in the rendered text, its tokens stand in the prompt."""

from collections.abc import Iterator

import pytest

from leftoff.chat.conversation import Conversation
from leftoff.chat.prompts import PromptMaker
from leftoff.engine.vision.encoder import PictureEncoder
from leftoff.engine.vision.kept import KeptPictures
from leftoff.picture import Picture, Pictures
from leftoff.picture_tokens import pictures_in
from tests.engine.vision.pictures import opened
from tests.engine.vision.test_encoder import png


@pytest.fixture(scope="module")
def maker() -> Iterator[PromptMaker]:
    with opened("nemotron_h", "idefics3") as (engine, projector):
        made = PromptMaker(engine.model)
        assert not made.sees_pictures
        made.encoder = PictureEncoder(projector, KeptPictures(1 << 20))
        yield made
        made.encoder.close()


def conversation(text: str, *pictures: Picture) -> Conversation:
    return Conversation([{"role": "user", "content": text}], pictures={each.marker: each for each in pictures})


def test_each_marker_becomes_the_tokens_of_its_picture(maker: PromptMaker) -> None:
    files = Pictures()
    one, other = files.take(png(1)), files.take(png(2, 90, 300))
    assert maker.encoder is not None
    prompt = maker.from_conversation(conversation(f"look {one.marker} and {other.marker} there", one, other))
    numbers = [maker.encoder.tokens(each) for each in (one, other)]
    assert len(prompt.pictures) == sum(each.num_images for each in numbers) == len(prompt.sources)
    assert {span.start for span in prompt.pictures} == {*prompt.sources}
    assert [end - start for start, end in prompt.images] == [len(each.tokens) - 3 for each in numbers]
    text = maker._vocabulary.text(prompt.tokens)
    assert "__picture" not in text
    assert text.count("[image]") == len(prompt.pictures)
    plain = maker.from_conversation(conversation("look  and  there"))
    assert plain.messages[-1].start == prompt.messages[-1].start
    assert prompt.messages[-1].end == prompt.length - (plain.length - plain.messages[-1].end)


def test_a_marker_of_no_picture_is_text(maker: PromptMaker) -> None:
    picture = Pictures().take(png(1))
    prompt = maker.from_conversation(conversation(f"look {picture.marker}"))
    assert not pictures_in(prompt.tokens)
    assert picture.marker in maker._vocabulary.text(prompt.tokens)


def test_the_next_turn_makes_the_same_tokens(maker: PromptMaker) -> None:
    files = Pictures()
    first = maker.make(conversation(f"look {files.take(png(1)).marker} there", files.take(png(1))))
    again = maker.make(conversation(f"look {files.take(png(1)).marker} there", files.take(png(1))), None, first)
    assert first.prompt.tokens.tolist() == again.prompt.tokens.tolist()
    assert {*first.prompt.sources} == {*again.prompt.sources}


@pytest.mark.parametrize("is_segmented", [True, False])
def test_plain_text_shows_pictures_too(maker: PromptMaker, is_segmented: bool) -> None:
    picture, separator = Pictures().take(png(1)), maker.tokenizer._separator
    maker.tokenizer._separator = separator if is_segmented else None
    try:
        prompt = maker.from_text(f"look {picture.marker} there", {picture.marker: picture})
    finally:
        maker.tokenizer._separator = separator
    assert len(prompt.images) == 1
    assert len(prompt.pictures) == len(prompt.sources) > 0
