"""Measured costs of prefill, saving, loading and fetching, in milliseconds: they differ thirtyfold between machines."""

import math
from dataclasses import dataclass, field

_WEIGHT = 0.2  # of the newest measurement
_MEMORY = 0.99  # of all earlier points of a line, with each new one
_MIN_POINTS = 3  # of a line
_LARGE = 0.25  # of the largest
_MIN_CALL_MS = 0.2
_FULL_RATE = 4  # times `rate_tokens`
SMALLEST_BYTES = 1 << 16  # moving fewer says more about the call than about the rate


@dataclass
class LinearFit:
    """A line through recent measurements; older ones count less and less."""

    weight: float = 0.0
    x: float = 0.0
    y: float = 0.0
    x_squared: float = 0.0
    x_y: float = 0.0
    slope: float | None = None  # until values of different x have been seen

    def add(self, x: float, y: float) -> None:
        self.weight = _MEMORY * self.weight + 1
        self.x = _MEMORY * self.x + x
        self.y = _MEMORY * self.y + y
        self.x_squared = _MEMORY * self.x_squared + x**2
        self.x_y = _MEMORY * self.x_y + x * y
        variance = self.weight * self.x_squared - self.x**2
        if self.weight >= _MIN_POINTS and variance > (0.2 * self.x) ** 2:  # else the last fit holds
            self.slope = max(0.0, (self.weight * self.x_y - self.x * self.y) / variance)

    def at(self, x: float) -> float | None:
        """None until there is a slope."""
        if self.slope is None:
            return None
        return max(0.0, self.y + self.slope * (self.weight * x - self.x)) / self.weight


@dataclass
class Costs:
    """Rates as moving averages. The server measures the first values when it has loaded the model."""

    prefill_tokens_per_ms: float = 0.5
    rate_tokens: int = 32  # in chunks of about so many tokens; much smaller chunks are slower, and are not counted
    cut_ms: float = 1.0  # of prefilling a prompt in one chunk more
    step_ms: float = 20.0  # a decode step: one token of every running reply
    load_bytes_per_ms: float = 4e6
    save_bytes_per_ms: float = 4e6
    call_ms: float = 0.2  # per load, whatever its size
    save_call_ms: float = _MIN_CALL_MS  # per save, whatever its size: llama.cpp passes over all cells
    large_save_bytes: int = SMALLEST_BYTES  # of the largest save: those of nearly so many bytes tell the rate
    snapshot_ms: float = 0.0  # of a snapshot as they were taken lately; 0 before any was
    reply_tokens: float = 200.0  # of a usual reply
    step_by_cells: LinearFit = field(default_factory=LinearFit)  # ms of a step of one reply, by cells in use
    token_by_cells: LinearFit = field(default_factory=LinearFit)  # ms of a prefilled token, by cells in use

    def prefill_ms(self, num_tokens: int) -> float:
        return num_tokens / self.prefill_tokens_per_ms

    def cold_ms(self, num_tokens: int) -> float:
        """Prefill of the first tokens of a prompt: each takes the longer, the more are before it."""
        token_ms = self.token_by_cells.at(num_tokens / 2)
        return num_tokens * token_ms if token_ms is not None else self.prefill_ms(num_tokens)

    def load_ms(self, nbytes: int) -> float:
        return self.call_ms + nbytes / self.load_bytes_per_ms if nbytes else 0.0

    def save_ms(self, nbytes: int) -> float:
        return self.save_call_ms + nbytes / self.save_bytes_per_ms

    def neighbour_ms(self, num_cells: int, num_tokens: int) -> float:
        """How much longer a request with `num_tokens` to prefill takes beside so many cells of idle sequences.

        Attention passes over the cells of all sequences. Unknown, and so infinite, until replies of different lengths
        were written; until a long prompt was read, only the reply counts.
        """
        step, token = self.step_by_cells.slope, self.token_by_cells.slope or 0.0
        return math.inf if step is None else num_cells * (self.reply_tokens * step + num_tokens * token)

    # --- measurements

    def saw_prefill(self, num_tokens: int, ms: float, num_cells: int = 0) -> None:
        if 2 * num_tokens >= self.rate_tokens and ms > 0:
            self.prefill_tokens_per_ms += _WEIGHT * (num_tokens / ms - self.prefill_tokens_per_ms)
            if num_tokens >= _FULL_RATE * self.rate_tokens:  # smaller ones are slower whatever the number of cells
                self.token_by_cells.add(num_cells, ms / num_tokens)

    def saw_step(self, ms: float, num_replies: int = 1, num_cells: int = 0) -> None:
        self.step_ms += _WEIGHT * (ms - self.step_ms)
        if num_replies == 1:
            self.step_by_cells.add(num_cells, ms)

    def saw_reply(self, num_tokens: int) -> None:
        self.reply_tokens += _WEIGHT * (num_tokens - self.reply_tokens)

    def saw_load(self, nbytes: int, ms: float) -> None:
        if nbytes >= SMALLEST_BYTES and ms > 0:
            self.load_bytes_per_ms += _WEIGHT * (nbytes / ms - self.load_bytes_per_ms)

    def saw_snapshot(self, nbytes: int, ms: float) -> None:
        """Learns from a snapshot with `nbytes` that were new. llama.cpp passes over all cells for any number."""
        self.snapshot_ms += (_WEIGHT if self.snapshot_ms else 1.0) * (ms - self.snapshot_ms)
        self.saw_save(nbytes, ms)

    def saw_save(self, nbytes: int, ms: float) -> None:
        """The largest saves tell the rate, smaller ones what a call takes."""
        if nbytes < max(SMALLEST_BYTES, _LARGE * self.large_save_bytes):
            call_ms = max(_MIN_CALL_MS, ms - nbytes / self.save_bytes_per_ms)
            self.save_call_ms += _WEIGHT * (call_ms - self.save_call_ms)
        elif ms > 0:
            self.large_save_bytes = max(nbytes, self.large_save_bytes)
            rate = nbytes / max(ms - self.save_call_ms, 0.1 * ms)
            self.save_bytes_per_ms += _WEIGHT * (rate - self.save_bytes_per_ms)


@dataclass
class TierCosts:
    """The measured cost of fetching from one tier below RAM, without loading into the engine."""

    bytes_per_ms: float = 5e5
    call_ms: float = 1.0  # until the medium begins to answer
    calls_at_once: float = math.inf  # how many blobs it delivers side by side
    is_measured: bool = False  # by a fetch; until then the rate is a guess, or what the blob store has measured
    is_probed: bool = False  # the blob store goes on measuring, also while nothing is fetched

    def fetch_ms(self, nbytes: int, num_blobs: int = 1) -> float:
        return self._calls_ms(num_blobs) + nbytes / self.bytes_per_ms if nbytes else 0.0

    def expect(self, bytes_per_ms: float | None, call_ms: float | None = None) -> None:
        """Takes the rate that the blob store has measured by itself, until a fetch is measured.

        A probe measures one blob alone, and several at once are no slower: so what it sees is the least.
        """
        if call_ms is not None:
            self.is_probed, self.call_ms = True, call_ms
        if bytes_per_ms and self.is_probed:
            self.bytes_per_ms = max(bytes_per_ms, self.bytes_per_ms)
        elif bytes_per_ms and not self.is_measured:
            self.bytes_per_ms = bytes_per_ms

    def saw_fetch(self, nbytes: int, ms: float, num_blobs: int = 1) -> None:
        """Averages times, not rates: one fetch from the system's file cache must not hide a slow disk."""
        if nbytes < SMALLEST_BYTES or ms <= 0:
            return
        if self.is_probed:
            ms = max(0.1 * ms, ms - self._calls_ms(num_blobs), 1e-3)
        weight = _WEIGHT if self.is_measured or self.is_probed else 1.0
        self.bytes_per_ms = 1 / (weight * ms / nbytes + (1 - weight) / self.bytes_per_ms)
        self.is_measured = True

    def _calls_ms(self, num_blobs: int) -> float:
        return -(-num_blobs // self.calls_at_once) * self.call_ms
