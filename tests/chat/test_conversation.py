from pathlib import Path

import pytest

from leftoff.chat.conversation import Conversation
from leftoff.picture import PictureError, Pictures
from tests.pictures import marker, png


def shown(*parts: dict[str, str]) -> list[dict[str, object]]:
    return [{"role": "system", "content": "be kind"}, {"role": "user", "content": [*parts]}]


def test_pictures_are_named_by_their_paths(tmp_path: Path) -> None:
    path = tmp_path / "shot.png"
    path.write_bytes(png("red"))
    picture, text = {"type": "image", "path": str(path)}, {"type": "text", "text": "what is this"}
    made = Conversation.with_files(shown(picture, text), Pictures())
    assert [message["content"] for message in made.messages] == ["be kind", f"{marker(png('red'))}what is this"]
    assert [each.data for each in made.pictures.values()] == [png("red")]
    with pytest.raises(PictureError, match="cannot be shown: this model reads text only"):
        Conversation.with_files(shown(picture, text), None)


def test_a_path_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("no picture")
    for name, problem in (
        ("gone.png", "gone.png cannot be read: No such file"),
        ("note.txt", "note.txt begins with the bytes 6e 6f"),
    ):
        with pytest.raises(PictureError, match=problem):
            Conversation.with_files(shown({"type": "image", "path": str(tmp_path / name)}), Pictures())


def test_other_parts_stay_as_they_are() -> None:
    messages = shown({"type": "text", "text": "a"}, {"type": "text", "text": "b"})
    assert Conversation.with_files(messages, None).messages == messages
