"""The walk of one chat turn through the code is seen from its connection to its first token."""

from lab.walk import walk_turn


def test_one_chat_turn_is_followed_through_all_layers() -> None:
    walk = walk_turn(1)
    folders = {name.split("/")[0] for name in walk.moves_to}
    assert {"server", "chat", "scheduler", "cache", "engine"} <= folders
