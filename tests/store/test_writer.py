"""What a process has said to be stored is stored, however it ends."""

from tests.store import kill_loop


def test_nothing_acknowledged_is_lost_when_the_writer_is_killed() -> None:
    assert kill_loop.main(2) > 0
