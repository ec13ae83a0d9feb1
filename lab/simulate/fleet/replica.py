"""One replica on paper: the server's own cache, an engine that reads one prompt at a time, and a line to the store."""

from collections import deque
from dataclasses import dataclass, field, replace

from lab.simulate.fleet.store import SharedStore, StoreView
from lab.simulate.leftoff_scheme import OwnCache, costs_of
from lab.simulate.llm import Llm
from lab.simulate.scheme import Budget
from lab.simulate.trace import Request
from leftoff.cache.policy import ValuePerByte
from leftoff.cache.tree import common_prefix
from leftoff.cluster.replica import ReplicaCosts
from leftoff.cluster.score import Estimate, FoundPoint, beside, estimate
from leftoff.types import Tokens

_UNLIMITED = 1 << 60
_MS = 1000.0


@dataclass(frozen=True)
class Line:
    """A replica's way to the store."""

    bytes_per_s: float
    latency_s: float


@dataclass
class Waiting:
    """A request at a replica. `asked_s` is when its fetch from the store could begin."""

    request: Request
    blocks: Tokens = field(repr=False)
    asked_s: float
    estimate: Estimate


class Replica:
    """Serves requests in the order in which they came. Replies are decoded beside the next prompts, for nothing."""

    def __init__(
        self, llm: Llm, block_tokens: int, ram_bytes: int, store: SharedStore | None = None, line: Line | None = None
    ) -> None:
        self._llm = llm if line is None else replace(llm, disk_bytes_per_s=line.bytes_per_s)
        self._block_tokens = block_tokens
        self._line = line
        self.view = StoreView(store) if store is not None else None
        budget = Budget(ram_bytes, _UNLIMITED if store is not None else 0)
        self._own = OwnCache(self._llm, block_tokens, budget, ValuePerByte, blobs=self.view)
        if self.view is not None:
            self.view.costs.call_ms = line.latency_s * _MS if line is not None else 0.0
        self.costs = _costs_of(self._llm, block_tokens, line)
        self.queue: deque[Waiting] = deque()
        self.running: Waiting | None = None
        self.free_s = 0.0
        self._line_free_s = 0.0
        self.fetched_bytes = 0

    @property
    def num_requests(self) -> int:
        return len(self.queue) + (self.running is not None)

    def queue_ms(self, now_s: float) -> float:
        """How long the engine would take to begin with a request that comes now."""
        left_ms = max(0.0, self.free_s - now_s) * _MS if self.running is not None else 0.0
        return left_ms + sum(each.estimate.work_ms for each in self.queue)

    def estimate(self, blocks: Tokens, now_s: float, in_store: int) -> Estimate:
        """How the router scores the replica: by what RAM holds, what will have been read, and what is stored."""
        local = [self._found(point.position) for point in self._own.cache.ram.match("", blocks).points()]
        local += map(FoundPoint, self._in_flight(blocks))
        stored = (
            [replace(self._found(in_store), store_bytes=self._state_bytes(in_store), store_blobs=1)] if in_store else []
        )
        return estimate(int(blocks.size), local + beside(local, stored), self.costs, self.queue_ms(now_s))

    def _found(self, position: int) -> FoundPoint:
        return FoundPoint(position, self._state_bytes(position))

    def _state_bytes(self, position: int) -> int:
        return self._llm.bytes_per_token * self._block_tokens * position + self._llm.snapshot_bytes

    def begin(self, now_s: float) -> tuple[int, float]:
        """Serves the next request. Returns the tokens that were read, and when its first token comes."""
        waiting = self.running = self.queue.popleft()
        if self.view is not None and self._own.cache.disk is not None:
            self.view.look_up(waiting.blocks, self._own.cache.disk)
        served = self._own.serve(replace(waiting.request, time_s=now_s), waiting.blocks)
        num_tokens = waiting.request.prompt_tokens - served.resumed * self._block_tokens
        ready_s = self._fetched_s(waiting, served.disk_bytes, now_s)
        work_ms = self._llm.ttft_ms(num_tokens, served.ram_bytes, 0, served.saved_bytes)
        self.free_s = ready_s + work_ms / _MS
        return num_tokens, self.free_s

    def end(self) -> None:
        self.running = None
        if self.view is not None:
            self.view.publish()

    def _fetched_s(self, waiting: Waiting, nbytes: int, now_s: float) -> float:
        """A fetch begins when the request has come and the line is free, and the engine waits for it if it must."""
        if not nbytes or self._line is None:
            return now_s
        self.fetched_bytes += nbytes
        begins_s = max(waiting.asked_s, self._line_free_s)
        self._line_free_s = begins_s + self._line.latency_s + nbytes / self._line.bytes_per_s
        return max(now_s, self._line_free_s)

    def _in_flight(self, blocks: Tokens) -> list[int]:
        """The prefixes that requests in the queue will have read by then."""
        there = [*self.queue, *([self.running] if self.running is not None else [])]
        shared = (common_prefix(each.blocks, blocks) for each in there)
        return [common for common in shared if common]


def _costs_of(llm: Llm, block_tokens: int, line: Line | None) -> ReplicaCosts:
    costs = ReplicaCosts(**vars(costs_of(llm, block_tokens)))
    if line is not None:
        costs.store_bytes_per_ms, costs.store_call_ms = line.bytes_per_s / _MS, line.latency_s * _MS
    return costs
