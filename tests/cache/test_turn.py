"""Where the prefill of a prompt pauses: at snapshots, on the grid, and where another request will resume."""

import numpy as np
import pytest

from leftoff.cache.report import ReuseReport
from leftoff.cache.sequences import EngineSequence
from leftoff.cache.turn import Turn
from leftoff.types import Prompt
from tests.cache.trees import Grove

LENGTH = 100


def turn_at(position: int, *snapshots: int, grid: int | None = None, reply_gap: int | None = None) -> Turn:
    tokens = np.arange(LENGTH + 50, dtype=np.int32)
    sequence = EngineSequence(0, Grove().budget)
    sequence.start(tokens[:position], "")
    report = ReuseReport(LENGTH, 0, 0, "nothing", (), tokens[:0], tokens[:0])
    return Turn(Prompt(tokens[:LENGTH]), sequence, report, snapshots, reply_gap=reply_gap, grid=grid)


@pytest.mark.parametrize(
    ("position", "grid", "end"),
    [
        *((0, None, 40), (39, None, 40), (40, None, 90), (90, None, LENGTH)),
        *((0, 16, 16), (16, 16, 32), (33, 16, 40), (40, 16, 48), (96, 16, LENGTH)),
    ],
)
def test_a_chunk_ends_at_the_next_snapshot_or_line_of_the_grid(position: int, grid: int | None, end: int) -> None:
    turn = turn_at(position, 40, 90, grid=grid)
    assert turn.next_chunk_end == end
    assert turn.next_chunk(1000).tolist() == [*range(position, end)]
    assert turn.next_chunk(5).tolist() == [*range(position, min(end, position + 5))]
    assert [turn.ends_chunk(num_tokens) for num_tokens in (end - position - 1, end - position)] == [False, True]


def test_another_request_will_resume_in_what_is_still_to_be_read() -> None:
    turn = turn_at(50, 70)
    for position in (30, 50, LENGTH, LENGTH + 1, 60, 70, 60):
        turn.add_snapshot_position(position)
    assert turn.snapshot_positions == (60, 70), "by position, each once"
    assert turn.durable_positions == {60}
    assert turn.next_chunk_end == 60


@pytest.mark.parametrize(
    ("position", "num_tokens", "is_wanted"),
    [
        *((40, 5, True), (41, 5, False), (40, 0, False), (LENGTH, 5, True)),
        *((LENGTH + 9, 1, False), (LENGTH + 10, 1, True), (LENGTH + 11, 1, False), (LENGTH + 11, 2, True)),
        *((LENGTH + 20, 1, True), (LENGTH + 22, 2, False), (LENGTH + 22, 3, True)),
    ],
)
def test_snapshots_are_taken_where_they_were_placed_and_at_every_gap_of_a_reply(
    position: int, num_tokens: int, is_wanted: bool
) -> None:
    """Several tokens of a reply may come at once: then the gap was passed by some of them."""
    assert turn_at(position, 40, LENGTH, reply_gap=10).wants_snapshot(num_tokens) == is_wanted
    if position > LENGTH:
        assert not turn_at(position, 40, LENGTH).wants_snapshot(num_tokens)
