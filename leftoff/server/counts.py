"""What the server has done for one tenant since it started, as plain numbers for the metrics."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

from leftoff.server.reuse_log import Record

FIRST_TOKEN_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


@dataclass
class Counts:
    """Written on the engine's thread only; a reader may see one request half counted, and does not mind."""

    reused_tokens: int = 0
    computed_tokens: Counter[str] = field(default_factory=Counter)  # by reason
    generated_tokens: int = 0
    read_ahead_tokens: int = 0
    prompt_seconds: float = 0.0
    generation_seconds: float = 0.0
    most_tokens: int = 0  # in one sequence, so far
    requests: Counter[str] = field(default_factory=Counter)  # by how they ended
    first_token_buckets: list[int] = field(default_factory=lambda: [0] * (len(FIRST_TOKEN_SECONDS) + 1))
    first_token_seconds: float = 0.0

    def add(self, record: Record) -> None:
        self.reused_tokens += record.reused
        self.computed_tokens.update(record.reasons)
        self.generated_tokens += record.generated
        self.prompt_seconds += record.prompt_ms / 1000
        self.generation_seconds += record.generation_ms / 1000
        self.most_tokens = max(self.most_tokens, record.prompt_tokens + record.generated)
        self.requests[record.finish] += 1
        if record.generated:
            seconds = (record.waited_ms + record.prompt_ms) / 1000
            self.first_token_buckets[bisect_left(FIRST_TOKEN_SECONDS, seconds)] += 1
            self.first_token_seconds += seconds
