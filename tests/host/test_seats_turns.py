"""Whatever is asked when, nobody waits for more than one turn of each other model, and no busy model is put to sleep.

The seats are played by a simulated clock: models that load, answer and sleep as their schedulers would have them do.
"""

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st

from leftoff.host.seats import Seat, Seats

ROOM = 10


@dataclass
class Asked:
    """A request: when it comes, for which model, for how long it is answered, and when its client leaves."""

    at: float
    model: int
    takes_s: float
    leaves_after_s: float | None
    began_at: float | None = None
    turns_of_others: dict[int, int] = field(default_factory=dict)


class Player:
    """The scheduler of one model, one request at a time."""

    def __init__(self, world: "World", number: int, nbytes: int, load_s: float) -> None:
        self.world = world
        self.number = number
        self.load_s = load_s
        self.seat: Seat = world.seats.add({"CPU": nbytes})
        self.seat.name = str(number)
        self.seat.notify = lambda: world.later(0.0, self.look)
        self.queue: deque[Asked] = deque()
        self.due: list[Asked] = []  # what has waited while it was loaded
        self.running: Asked | None = None
        self.is_awake = False
        self.is_loading = False
        self.was_shut = False
        self.worked_at = 0.0

    def ask(self, asked: Asked) -> None:
        self.queue.append(asked)
        self.look()

    def leave(self, asked: Asked) -> None:
        if asked in self.queue:
            self.queue.remove(asked)
            self.look()

    def look(self) -> None:
        if self.is_loading or self.running is not None:
            return
        if not self.queue:
            if self.was_shut:
                self.seat.withdraw()
            self.was_shut = False
            self.rest()
            return
        self.was_shut = not self.seat.admits()
        if self.was_shut and self.is_awake and self.queue[0] in self.due:
            self.begin()
        elif self.was_shut:
            self.rest()
        elif not self.is_awake:
            self.is_loading = True
            self.world.began_turn(self.number)
            self.world.later(self.load_s, self.woke)
        else:
            self.begin()

    def woke(self) -> None:
        self.is_loading, self.is_awake, self.due = False, True, [*self.queue]
        self.seat.woke(self.load_s)
        self.worked_at = self.world.now
        self.world.check_room()
        self.look()

    def begin(self) -> None:
        asked = self.running = self.queue.popleft()
        asked.began_at = self.world.now
        self.seat.began(self.world.now - asked.at, 0)
        self.world.later(asked.takes_s, self.end)

    def end(self) -> None:
        self.running = None
        self.worked_at = self.world.now
        self.look()

    def rest(self) -> None:
        """What an idle scheduler does, and again every second."""
        if self.is_awake and self.seat.gives_way(self.world.now - self.worked_at):
            assert self.running is None, "a busy model is never put to sleep"
            self.is_awake = False
            self.seat.slept()


class World:
    def __init__(self, models: list[tuple[int, float]], most: int) -> None:
        self.now = 0.0
        self._numbers = count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self.seats = Seats({"CPU": ROOM}, most, clock=lambda: self.now)
        self.most = most
        self.asked: list[Asked] = []
        self.players = [Player(self, number, *model) for number, model in enumerate(models)]

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + seconds, next(self._numbers), call))

    def began_turn(self, number: int) -> None:
        """Whoever waits now, and is not being loaded for, waits for it."""
        for player in self.players:
            for asked in () if player.is_awake or player.is_loading else player.queue:
                asked.turns_of_others[number] = asked.turns_of_others.get(number, 0) + 1

    def check_room(self) -> None:
        awake = [player for player in self.players if player.is_awake]
        nbytes = sum(player.seat.needs["CPU"] for player in awake)
        assert len(awake) <= self.most
        assert len(awake) == 1 or nbytes <= ROOM

    def play(self, asked: list[Asked]) -> None:
        self.asked = asked
        for each in asked:
            player = self.players[each.model]
            self.later(each.at, lambda player=player, each=each: player.ask(each))  # type: ignore[misc]
            if each.leaves_after_s is not None:
                late = each.at + each.leaves_after_s
                self.later(late, lambda player=player, each=each: player.leave(each))  # type: ignore[misc]
        end = sum(each.takes_s + 20 for each in asked) + max(each.at for each in asked) + 60
        tick = 1.0
        while tick < end:
            for player in self.players:
                self.later(tick, player.look)
            tick += 1.0
        while self._events:
            self.now, _, call = heapq.heappop(self._events)
            call()


MODELS = st.lists(st.tuples(st.integers(2, 10), st.floats(0.1, 8.0)), min_size=2, max_size=4)
REQUESTS = st.lists(
    st.tuples(st.floats(0, 40), st.integers(0, 3), st.floats(0.05, 15), st.none() | st.floats(0, 20)),
    min_size=1,
    max_size=30,
)


@settings(max_examples=80, deadline=None)
@given(MODELS, REQUESTS, st.integers(1, 3))
def test_nobody_waits_for_more_than_one_turn_of_each_other_model(
    models: list[tuple[int, float]],
    requests: list[tuple[float, int, float, float | None]],
    most: int,
) -> None:
    world = World(models, most)
    asked = [Asked(at, model % len(models), takes, leaves) for at, model, takes, leaves in requests]
    world.play(asked)
    for each in asked:
        others = {number: turns for number, turns in each.turns_of_others.items() if number != each.model}
        assert all(turns <= 1 for turns in others.values()), f"{each} waited for {others}"
        has_left = each.leaves_after_s is not None and each.began_at is None
        assert each.began_at is not None or has_left, f"{each} was never answered"
