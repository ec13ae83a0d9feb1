"""Of several models as many are loaded as fit, and the others in their turn."""

import pytest

from leftoff.host.seats import Seat, Seats
from leftoff.scheduler.gate import NoSeatError


class Machine:
    """Seats under a clock that the test moves."""

    def __init__(self, room: int = 10, most: float = 8) -> None:
        self.now = 0.0
        self.seats = Seats({"CPU": room}, most, clock=lambda: self.now)
        self.told: list[str] = []

    def seat(self, name: str, nbytes: int, load_s: float = 2.0, *, pinned: bool = False) -> Seat:
        seat = self.seats.add({"CPU": nbytes}, pinned=pinned)
        seat.notify = lambda: self.told.append(name)
        seat.woke(load_s)
        return seat


def test_as_many_are_loaded_as_fit() -> None:
    machine = Machine(room=10)
    small, other, large = machine.seat("small", 4), machine.seat("other", 6), machine.seat("large", 7)
    assert small.admits()
    assert other.admits()
    assert not large.admits()
    assert machine.told == ["small", "other"], "whoever is idle sees that it is in the way"


def test_no_more_are_loaded_than_was_said() -> None:
    machine = Machine(most=1)
    one, two = machine.seat("one", 0), machine.seat("two", 0)
    assert one.admits()
    assert not two.admits()


def test_the_longest_idle_goes_first_and_no_more_than_needed() -> None:
    machine = Machine(room=10)
    one, two, wanted = machine.seat("one", 5), machine.seat("two", 5), machine.seat("wanted", 5)
    assert one.admits()
    assert two.admits()
    assert not wanted.admits()
    machine.now = 100.0
    assert two.gives_way(50.0), "the other is not known to be idle"
    assert one.gives_way(60.0)
    assert not two.gives_way(50.0), "the other goes"
    one.slept()
    assert machine.told[-1] == "wanted"
    assert wanted.admits()
    assert not two.gives_way(70.0)


def test_an_idle_one_stays_while_nobody_waits() -> None:
    machine = Machine()
    one = machine.seat("one", 10)
    assert one.admits()
    assert not one.gives_way(1e6)


def test_a_busy_one_has_its_turn_and_then_begins_nothing_more() -> None:
    machine = Machine()
    busy, other = machine.seat("busy", 10, load_s=2.0), machine.seat("other", 10, load_s=3.0)
    assert busy.admits()
    assert not other.admits()
    machine.now = 2.4
    assert busy.admits(), "a swap takes two seconds or three"
    machine.now = 2.5
    assert not busy.admits()
    assert busy.gives_way(0.0), "once what it has begun has ended"
    busy.slept()
    assert not busy.admits(), "the other came first"
    assert other.admits()
    machine.now = 10.0
    assert other.admits(), "it is still being loaded"
    other.woke(3.0)
    machine.now = 12.5
    assert not other.admits()


def test_those_that_wait_are_loaded_in_their_order() -> None:
    machine = Machine()
    loaded, first, second = machine.seat("loaded", 10), machine.seat("first", 10), machine.seat("second", 1)
    assert loaded.admits()
    assert not first.admits()
    machine.now = 1.0
    assert not second.admits()
    loaded.slept()
    assert not second.admits()
    assert first.admits()


def test_one_that_is_not_wanted_any_more_lets_those_behind_it_pass() -> None:
    machine = Machine()
    loaded, first, second = machine.seat("loaded", 6), machine.seat("first", 6), machine.seat("second", 4)
    assert loaded.admits()
    assert not first.admits()
    assert not second.admits(), "it would fit, but the other has waited longer"
    first.withdraw()
    assert machine.told[-1] == "second"
    assert second.admits()
    assert not loaded.gives_way(100.0), "nobody waits"


def test_one_that_is_larger_than_the_machine_is_tried_alone_and_fails_with_its_own_reason() -> None:
    machine = Machine(room=10)
    assert machine.seat("huge", 11).admits()


def test_one_that_was_just_loaded_has_its_turn_before_it_sleeps() -> None:
    machine = Machine(most=1)
    fresh, other = machine.seat("fresh", 0), machine.seat("other", 0)
    assert fresh.admits()
    assert not other.admits()
    fresh.woke(2.0)
    assert not fresh.gives_way(0.0), "the request that it was loaded for is still on its way"
    fresh.began(2.0, 0)
    assert fresh.gives_way(0.0), "it was answered"


def test_one_that_has_guests_does_not_sleep_and_others_go_in_its_place() -> None:
    machine = Machine(most=2)
    opened, other, wanted = machine.seat("opened", 0), machine.seat("other", 0), machine.seat("wanted", 0)
    with opened.guest():
        assert opened.admits()
        opened.woke(2.0)
        assert other.admits()
        other.woke(2.0)
        assert not wanted.admits()
        machine.now = 100.0
        opened.keep(0)
        assert not opened.gives_way(50.0), "whoever has waited for it is still being read"
        other.began(0.0, 0)
        assert other.gives_way(1.0)
        other.slept()
        assert wanted.admits()
        wanted.woke(2.0)
    assert machine.told[-1] == "opened", "its scheduler looks again"
    assert opened.gives_way(50.0)


def test_nobody_waits_for_room_that_pinned_ones_have() -> None:
    machine = Machine(room=10)
    assert machine.seat("pinned", 6, pinned=True).admits()
    with pytest.raises(NoSeatError, match=r"no room for .* beside"):
        machine.seat("large", 5).admits()


def test_a_pinned_one_makes_way_for_nobody() -> None:
    machine = Machine(room=10)
    pinned, other, wanted = machine.seat("pinned", 4, pinned=True), machine.seat("other", 6), machine.seat("wanted", 6)
    assert pinned.admits()
    assert other.admits()
    assert not wanted.admits()
    machine.now = 100.0
    assert pinned.admits(), "its turn is never over"
    assert not other.admits()
    assert not pinned.gives_way(90.0)
    assert other.gives_way(0.0)


@pytest.mark.parametrize("does_it_leave", [False, True])
def test_one_that_begins_nothing_more_looks_again_when_nobody_waits_for_its_room(*, does_it_leave: bool) -> None:
    machine = Machine(most=2)
    busy, other, wanted = machine.seat("busy", 1), machine.seat("other", 1), machine.seat("wanted", 1)
    assert busy.admits()
    assert other.admits()
    machine.now = 10.0
    assert not wanted.admits()
    assert not busy.admits()
    machine.told.clear()
    (wanted.withdraw if does_it_leave else other.slept)()
    assert "busy" in machine.told
    assert busy.admits()


def test_a_request_is_told_who_was_busy_while_it_waited_and_nobody_else() -> None:
    machine = Machine(most=1)
    busy, gone, wanted = machine.seat("busy", 1), machine.seat("gone", 1), machine.seat("wanted", 1)
    busy.name, gone.name, wanted.name = "busy", "gone", "wanted"
    assert busy.admits()
    assert not gone.admits()
    assert not wanted.admits()
    machine.now = 5.0
    gone.slept()  # it was never loaded: whoever asked for it has left
    busy.slept()
    assert wanted.admits()
    machine.now = 7.0
    wanted.woke(2.0)
    assert wanted.began(7.0, 0) == "wanted was loading (2.0 s), busy was busy"
    assert wanted.began(1.0, 0) == "wanted was loading (2.0 s)", "it came later"
