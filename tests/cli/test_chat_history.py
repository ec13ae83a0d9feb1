"""The turns of a chat in the terminal are kept, taken back, and saved with the paths of their pictures."""

from pathlib import Path

from leftoff.cli.chat_history import ChatHistory, Question


def test_a_conversation_keeps_turns_and_gives_them_back() -> None:
    conversation = ChatHistory("be kind")
    asked, next_one = Question("a", ("shot.png",)), Question("c")
    conversation.add(asked, "b")
    assert [message["role"] for message in conversation.asking(next_one)] == ["system", "user", "assistant", "user"]
    assert conversation.asking(next_one)[1]["content"][0] == {"type": "image", "path": "shot.png"}
    assert (conversation.undo(), conversation.undo()) == ((asked, "b"), None)
    assert [message["content"] for message in conversation.asking(next_one)] == ["be kind", "c"]


def test_pictures_are_saved_by_their_paths(tmp_path: Path) -> None:
    history, path = ChatHistory("", [(Question("what?", ("a.png", "b.png")), "that")]), tmp_path / "talk.json"
    history.save(path)
    loaded = ChatHistory("other", [])
    loaded.load(path)
    assert loaded == history
