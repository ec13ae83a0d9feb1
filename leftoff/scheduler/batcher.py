"""What is decoded next, of all that runs."""

from collections.abc import Sequence
from dataclasses import dataclass

from leftoff.cache.costs import Costs
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.scheduler.run import Run


@dataclass(frozen=True)
class Limits:
    """How much a step may do, and how much may wait."""

    piece_tokens: int = 512
    piece_ms: float = 150.0  # of pieces of prompts while others are waiting for their next token
    smallest_piece: int = 64
    worth_waiting_tokens: int = 64  # shared with a prompt being read, beyond what is in the cache
    worth_reading_ahead: int = 4  # tokens
    worth_going_on: int = 16  # ahead, in a slot that stands there: fewer are read as quickly with the next prompt
    queue: int = 512
    at_once: int = 255  # requests in one batch


class Batcher:
    """Decides how much of whom; decodes nothing."""

    def __init__(self, engine: LlamaEngine, costs: Costs, limits: Limits) -> None:
        self._engine = engine
        self._costs = costs
        self._limits = limits

    def next(self, runs: Sequence[Run], step: int) -> list[tuple[Run, Work]]:
        """All replies, a piece of the prompt that was served longest ago, and with it others that are read quickly."""
        reading: list[Run] = []
        writing: list[Run] = []
        for run in runs:
            if run.finish is None:
                (reading if run.turn.is_reading else writing).append(run)
        batch = [(run, run.work(1)) for run in writing]
        if not reading:
            return batch
        most = min(self._limits.piece_tokens, self._engine.batch_tokens - len(reading) - len(writing))
        quick = min(most, self._quick_tokens())
        room = limit = quick if batch else most
        free_cells = self._engine.memory.free_cells if len(reading) > 1 else 0
        for run in sorted(reading, key=lambda run: run.last_served):
            work = run.work(limit)
            if work.tokens.size <= room:
                batch.append((run, work))
                run.last_served = step
                # a second prompt keeps the others waiting, and must leave them their cells
                room = min(room, quick, free_cells) - work.tokens.size
        return batch

    def _quick_tokens(self) -> int:
        """So many tokens of prompts are read while others wait for their next one."""
        quick = int(self._limits.piece_ms * self._costs.prefill_tokens_per_ms)
        return max(self._limits.smallest_piece, quick)
