"""How long a batch takes by its number of tokens, as a multiple of a batch of one. Measured at load, then as it goes.

On a GPU eight tokens take about as long as one; on a CPU twice as long or eight times, depending on its instructions
and on the build of llama.cpp. A GPU is slower for a few steps whenever the size changes: that is one figure more, the
price of a draft that comes alone.
"""

from bisect import bisect_left
from collections.abc import Mapping

MAX_TOKENS = 64
_WEIGHT = 0.1  # of the newest measurement
_LATELY = 32  # batches
_SLOW_STEPS = 2  # of a single token after another batch, where that matters


class BatchTimes:
    """Multiples for 1 to 64 tokens, between and beyond the measured sizes on straight lines."""

    def __init__(self, seconds: Mapping[int, float], change_s: float = 0.0) -> None:
        """`seconds` are those that batches of some sizes, 1 among them, took among others of their size.

        Around a batch of another size, steps take `change_s` longer.
        """
        sizes = sorted(seconds)
        self.ms = 1000 * seconds[1]  # of a batch of one token
        self._num_seen = [0] * (MAX_TOKENS + 1)  # batches, by their size
        self._num_after = 0  # batches since one of a single token
        self._num_single = _SLOW_STEPS  # of a single token, since another one
        self.change_ms = 1000 * change_s
        # a machine that was busy while a single token was measured makes none cheaper
        times = (_between(sizes, seconds, size) / seconds[1] for size in range(1, MAX_TOKENS + 1))
        self.multiples = [0.0, *(max(1.0, multiple) for multiple in times)]

    @property
    def change(self) -> float:
        """The price of a change of size, as a multiple of a batch of one: a batch costs it beside its own time."""
        return self.change_ms / self.ms

    @property
    def change_now(self) -> float:
        """The price of a change now, for a reply that is alone: nothing if its last batch had a draft too."""
        return 0.0 if self._num_after else self.change

    def best_gain(self, step: float = 0.0) -> float:
        """How many times more tokens a second come from the best size of batch than from one token at a time.

        To draft each but the first takes `step` times as long as a batch of one.
        """
        return max(size / (self.multiples[size] + step * (size - 1)) for size in range(1, MAX_TOKENS + 1))

    def saw(self, num_tokens: int, ms: float) -> None:
        """A batch took so long. One of a single token tells how long that takes now, with so many tokens before it."""
        if num_tokens > MAX_TOKENS:
            return
        expected = self.ms * self.multiples[num_tokens]
        if not 0.25 * expected < ms < 4 * expected and num_tokens > 1:
            return  # the machine was busy with something else
        if num_tokens > 1:
            self._num_after, self._num_single = self._num_after + 1, 0
        else:
            self._num_after, self._num_single = 0, self._num_single + 1
        is_slow = self.change_ms > 0 and 0 < self._num_single <= _SLOW_STEPS
        if not 0 < self._num_after <= _LATELY and not is_slow:  # else it is known how long a single token takes
            self.ms += _WEIGHT * (ms / self.multiples[num_tokens] - self.ms)
        if num_tokens > 1:
            self._learn(num_tokens, ms / self.ms)

    def _learn(self, num_tokens: int, multiple: float) -> None:
        """Sizes that were never seen move along: what was measured at load may be off for all by the same.

        At first the quickest count most: the first batches of a size are slow on a GPU.
        """
        is_quicker = multiple < self.multiples[num_tokens]
        weight = max(_WEIGHT, is_quicker / (2 + self._num_seen[num_tokens]))  # what was measured at load counts as one
        change = weight * (multiple - self.multiples[num_tokens])
        self._num_seen[num_tokens] += 1
        for size in range(2, MAX_TOKENS + 1):
            if size == num_tokens or not self._num_seen[size]:
                self.multiples[size] = max(1.0, self.multiples[size] + change)


def _between(sizes: list[int], seconds: Mapping[int, float], size: int) -> float:
    """Seconds of a batch, on the line through the measured sizes next to it."""
    if len(sizes) == 1:
        return size * seconds[sizes[0]] / sizes[0]
    index = min(max(1, bisect_left(sizes, size)), len(sizes) - 1)
    low, high = sizes[index - 1], sizes[index]
    return seconds[low] + (size - low) * (seconds[high] - seconds[low]) / (high - low)
