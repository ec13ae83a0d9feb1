"""What things cost here, in milliseconds. Measured while serving, since they differ thirtyfold between machines."""

from dataclasses import dataclass

_WEIGHT = 0.2  # of the newest measurement
_SMALLEST_TOKENS = 32  # a shorter piece says more about overhead than about the rate
_SMALLEST_BYTES = 1 << 16


@dataclass
class Costs:
    """Rates that follow what is observed. The first values are guesses of a laptop's."""

    prefill_tokens_per_ms: float = 0.5
    step_ms: float = 20.0  # of one token of every running reply
    load_bytes_per_ms: float = 4e6
    save_bytes_per_ms: float = 4e6
    call_ms: float = 0.2  # of one save or load, whatever its size

    def prefill_ms(self, num_tokens: int) -> float:
        return num_tokens / self.prefill_tokens_per_ms

    def load_ms(self, nbytes: int) -> float:
        return self.call_ms + nbytes / self.load_bytes_per_ms if nbytes else 0.0

    def save_ms(self, nbytes: int) -> float:
        return self.call_ms + nbytes / self.save_bytes_per_ms

    def saw_prefill(self, num_tokens: int, ms: float) -> None:
        if num_tokens >= _SMALLEST_TOKENS and ms > 0:
            self.prefill_tokens_per_ms += _WEIGHT * (num_tokens / ms - self.prefill_tokens_per_ms)

    def saw_step(self, ms: float) -> None:
        self.step_ms += _WEIGHT * (ms - self.step_ms)

    def saw_load(self, nbytes: int, ms: float) -> None:
        if nbytes >= _SMALLEST_BYTES and ms > 0:
            self.load_bytes_per_ms += _WEIGHT * (nbytes / ms - self.load_bytes_per_ms)

    def saw_save(self, nbytes: int, ms: float) -> None:
        if nbytes >= _SMALLEST_BYTES and ms > 0:
            self.save_bytes_per_ms += _WEIGHT * (nbytes / ms - self.save_bytes_per_ms)
