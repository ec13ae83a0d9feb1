"""One chat turn is short to follow: it runs through few files, and seldom passes from one into another."""

from lab.walk import walk_turn

MOST_FILES = 65
MOST_MOVES = 320


def test_one_chat_turn_runs_through_few_files_and_moves_between_them_seldom() -> None:
    walk = walk_turn()
    assert walk.num_files <= MOST_FILES, f"these files: {', '.join(walk.moves_to)}"
    assert walk.num_moves <= MOST_MOVES, f"moves to each file: {walk.moves_to.most_common()}"
