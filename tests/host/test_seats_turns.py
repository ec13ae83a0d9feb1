"""Whatever is asked when, nobody waits for more than one turn of each other model, and no busy model is put to sleep.

The seats are played by a simulated clock: models that load, answer and sleep as their schedulers would have them do.
"""

import heapq
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count

from hypothesis import example, given, settings
from hypothesis import strategies as st

from leftoff.host.seats import Seat, Seats

ROOM = 10


@dataclass
class Asked:
    """A request: when it comes, for which model, for how long it is read and answered, and when its client leaves."""

    at: float
    model: int
    reads_s: float
    takes_s: float
    leaves_after_s: float | None
    has_left: bool = False
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
        self.is_open = False
        self.guests: dict[int, tuple[Asked, ExitStack]] = {}  # until they are in the queue
        self.queue: deque[Asked] = deque()
        self.due: list[Asked] = []  # what has waited while it was loaded
        self.running: Asked | None = None
        self.is_awake = False
        self.is_loading = False
        self.was_shut = False
        self.worked_at = 0.0

    def ask(self, asked: Asked) -> None:
        """The prompt of a request is read before it waits; if the model was never loaded, after that."""
        if self.is_open:
            self.world.later(asked.reads_s, lambda: self.submit(asked))
            return
        guest = ExitStack()
        guest.enter_context(self.seat.guest())
        self.guests[id(asked)] = (asked, guest)
        self.look()

    def submit(self, asked: Asked) -> None:
        _, guest = self.guests.pop(id(asked), (asked, None))
        if not asked.has_left:
            self.queue.append(asked)
            self.due += [asked] if guest is not None else []
        if guest is not None:
            guest.close()
        self.look()

    def leave(self, asked: Asked) -> None:
        asked.has_left = asked.began_at is None
        if asked in self.queue:
            self.queue.remove(asked)
        elif not self.is_open and id(asked) in self.guests:
            self.guests.pop(id(asked))[1].close()
        self.look()

    def look(self) -> None:
        if self.is_loading or self.running is not None:
            return
        if not self.queue and (self.is_open or not self.guests):
            if self.was_shut:
                self.seat.withdraw()
            self.was_shut = False
            self.rest()
            return
        self.was_shut = not self.seat.admits()
        due = [asked for asked in self.queue if asked in self.due]
        if not self.was_shut and not self.is_awake:
            self.is_loading = True
            self.world.began_turn(self.number)
            self.world.later(self.load_s, self.woke)
        elif self.is_awake and (due or not self.was_shut):
            self.begin(due[0] if self.was_shut else self.queue[0])
        else:
            self.rest()

    def woke(self) -> None:
        self.is_loading, self.is_awake, self.due = False, True, [*self.queue]
        self.seat.woke(self.load_s)
        self.worked_at = self.world.now
        self.world.check_room()
        if not self.is_open:
            self.is_open = True
            for asked, _ in self.guests.values():
                self.world.later(asked.reads_s, lambda asked=asked: self.submit(asked))  # type: ignore[misc]
        self.look()

    def begin(self, asked: Asked) -> None:
        self.running = asked
        self.queue.remove(asked)
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
            waiting = [*player.queue, *(asked for asked, _ in player.guests.values())]
            for asked in () if player.is_awake or player.is_loading else waiting:
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
        end = sum(each.reads_s + each.takes_s + 20 for each in asked) + max(each.at for each in asked) + 60
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
    st.tuples(
        *(st.floats(0, 40), st.integers(0, 3), st.floats(0, 8), st.floats(0.05, 15), st.none() | st.floats(0, 20))
    ),
    min_size=1,
    max_size=30,
)


@settings(max_examples=80, deadline=None)
@given(MODELS, REQUESTS, st.integers(1, 3))
# the request for 1 waits for a turn of 0 before its model is loaded, and is being read when 0 is asked again
@example(
    [(10, 0.1)] * 3,
    [(0.0, 2, 0.0, 0.5, None), (0.1, 0, 0.0, 0.5, None), (0.2, 1, 8.0, 0.5, None), (3.0, 0, 0.0, 0.5, None)],
    1,
)
def test_nobody_waits_for_more_than_one_turn_of_each_other_model(
    models: list[tuple[int, float]],
    requests: list[tuple[float, int, float, float, float | None]],
    most: int,
) -> None:
    world = World(models, most)
    asked = [Asked(at, model % len(models), reads, takes, leaves) for at, model, reads, takes, leaves in requests]
    world.play(asked)
    for each in asked:
        others = {number: turns for number, turns in each.turns_of_others.items() if number != each.model}
        assert all(turns <= 1 for turns in others.values()), f"{each} waited for {others}"
        assert each.began_at is not None or each.has_left, f"{each} was never answered"
