"""Four agents that share the first half of a long prompt and take turns, and what becomes of their conversations."""

import random
from dataclasses import dataclass, field

from lab.bench.completion import Completed
from lab.gpu.record import Series
from lab.gpu.rig import Server

NUM_AGENTS, NUM_NEW, NUM_REPLY = 4, 64, 16
FROM_END, NUM_EDITED = 200, 100


@dataclass
class Agents:
    """Their conversations on one server. `long` is the length of each at the beginning, `count` how many there are."""

    server: Server
    long: int
    count: int = NUM_AGENTS
    histories: list[list[int]] = field(default_factory=list)
    _replies: list[Completed] = field(default_factory=list)

    def begin(self) -> Series:
        """The first turn of each."""
        tokens = self.server.prompts.tokens
        half = tokens("header", self.long // 2)
        self.histories = [half + tokens(f"agent {number}", self.long - len(half)) for number in range(self.count)]
        self._replies = [self.server.ask(history, NUM_REPLY) for history in self.histories]
        return series(self._replies)

    def turn(self) -> Series:
        """The next turn of each."""
        return joined([self.turn_of(number) for number in range(self.count)])

    def turn_of(self, number: int) -> Series:
        """The next turn of one: its last reply, less the token that was only chosen, and new tokens."""
        history = self.histories[number]
        new = self.server.prompts.tokens(f"agent {number} after {len(history)}", NUM_NEW)
        self.histories[number] = [*history, *self._replies[number].tokens[: NUM_REPLY - 1], *new]
        self._replies[number] = self.server.ask(self.histories[number], NUM_REPLY)
        return series([self._replies[number]])

    def again(self, number: int) -> Series:
        """The last prompt of one, once more."""
        return series([self.server.ask(self.histories[number], NUM_REPLY)])

    def edited_near_end(self, number: int) -> Series:
        """The last prompt of one, with an edit `FROM_END` tokens before its end."""
        return series([self._ask_edited(number, len(self.histories[number]) - FROM_END)])

    def edited_anywhere(self, num_places: int) -> Series:
        """The last prompt of the last one, with an edit at one random place after the other."""
        length = len(self.histories[-1])
        places = random.Random(7).sample(range(length // 16, length - NUM_NEW), num_places)
        return series([self._ask_edited(-1, place) for place in places])

    def _ask_edited(self, number: int, place: int) -> Completed:
        """Asks for a reply to a prompt that is cut at `place` and continued with other tokens."""
        history = self.histories[number]
        other = self.server.prompts.tokens(f"edit at {place} of {len(history)}", NUM_EDITED)
        return self.server.ask(history[:place] + other, NUM_REPLY)


def series(replies: list[Completed]) -> Series:
    """First-token times, with the tokens computed."""
    return Series(tuple(one.first_token_ms for one in replies), tuple(one.computed for one in replies))


def joined(parts: list[Series]) -> Series:
    """One series of several."""
    values = tuple(value for part in parts for value in part.values)
    return Series(values, tuple(count for part in parts for count in part.computed))
