"""Measured costs of prefill, loading, saving and fetching, in milliseconds: they differ thirtyfold between machines."""

from dataclasses import dataclass, field

_WEIGHT = 0.2  # of the newest measurement
_MEMORY = 0.97  # of all earlier pieces, with each new one
_SMALLEST_TOKENS = 32  # a shorter piece says more about overhead than about the rate
_SMALLEST_BYTES = 1 << 16


@dataclass
class PieceCost:
    """A linear fit of recent prefill batches: ms per token, and a constant ms per piece.

    The constant is what a snapshot in the middle of a prompt costs beyond its copy: one piece more.
    """

    weight: float = 0.0
    tokens: float = 0.0
    ms: float = 0.0
    tokens_squared: float = 0.0
    tokens_ms: float = 0.0
    per_piece_ms: float | None = None  # until pieces of different sizes have been seen

    def add(self, num_tokens: int, ms: float) -> None:
        self.weight = _MEMORY * self.weight + 1
        self.tokens = _MEMORY * self.tokens + num_tokens
        self.ms = _MEMORY * self.ms + ms
        self.tokens_squared = _MEMORY * self.tokens_squared + num_tokens**2
        self.tokens_ms = _MEMORY * self.tokens_ms + num_tokens * ms
        variance = self.weight * self.tokens_squared - self.tokens**2
        if self.weight >= 4 and variance >= (0.2 * self.tokens) ** 2:  # else the last fit holds
            slope = (self.weight * self.tokens_ms - self.tokens * self.ms) / variance
            self.per_piece_ms = max(0.0, (self.ms - slope * self.tokens) / self.weight)

    @property
    def mean_tokens(self) -> float:
        return self.tokens / self.weight if self.weight else 0.0


@dataclass
class Costs:
    """Rates as moving averages. The initial values are guesses for a laptop."""

    prefill_tokens_per_ms: float = 0.5
    step_ms: float = 20.0  # a decode step: one token of every running reply
    load_bytes_per_ms: float = 4e6
    save_bytes_per_ms: float = 4e6
    call_ms: float = 0.2  # per save or load, whatever its size
    disk_bytes_per_ms: float = 5e5
    disk_call_ms: float = 1.0  # per fetch, whatever its size
    disk_is_measured: bool = False  # by a fetch; until then its rate is a guess, or what the blob store has measured
    pieces: PieceCost = field(default_factory=PieceCost)

    @property
    def cut_ms(self) -> float:
        """The cost of prefilling a prompt in one piece more."""
        measured = self.pieces.per_piece_ms
        return measured if measured is not None else 1.0

    def prefill_ms(self, num_tokens: int) -> float:
        return num_tokens / self.prefill_tokens_per_ms

    def load_ms(self, nbytes: int) -> float:
        return self.call_ms + nbytes / self.load_bytes_per_ms if nbytes else 0.0

    def disk_ms(self, nbytes: int) -> float:
        """Fetching into RAM; loading from there comes on top."""
        return self.disk_call_ms + nbytes / self.disk_bytes_per_ms if nbytes else 0.0

    def save_ms(self, nbytes: int) -> float:
        return self.call_ms + nbytes / self.save_bytes_per_ms

    # --- measurements

    def saw_prefill(self, num_tokens: int, ms: float) -> None:
        self.pieces.add(num_tokens, ms)
        if num_tokens >= _SMALLEST_TOKENS and ms > 0:
            self.prefill_tokens_per_ms += _WEIGHT * (num_tokens / ms - self.prefill_tokens_per_ms)

    def saw_step(self, ms: float) -> None:
        self.step_ms += _WEIGHT * (ms - self.step_ms)

    def saw_load(self, nbytes: int, ms: float) -> None:
        if nbytes >= _SMALLEST_BYTES and ms > 0:
            self.load_bytes_per_ms += _WEIGHT * (nbytes / ms - self.load_bytes_per_ms)

    def expect_disk(self, bytes_per_ms: float) -> None:
        """The rate of the first fetch, as far as the blob store can tell before it."""
        if not self.disk_is_measured:
            self.disk_bytes_per_ms = bytes_per_ms

    def saw_disk(self, nbytes: int, ms: float) -> None:
        """Averages times, not rates: one fetch from the system's file cache must not hide a slow disk."""
        if nbytes >= _SMALLEST_BYTES and ms > 0:
            weight = _WEIGHT if self.disk_is_measured else 1.0
            self.disk_bytes_per_ms = 1 / (weight * ms / nbytes + (1 - weight) / self.disk_bytes_per_ms)
            self.disk_is_measured = True

    def saw_save(self, nbytes: int, ms: float) -> None:
        if nbytes >= _SMALLEST_BYTES and ms > 0:
            self.save_bytes_per_ms += _WEIGHT * (nbytes / ms - self.save_bytes_per_ms)
