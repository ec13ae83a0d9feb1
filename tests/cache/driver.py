"""Drives a cache over the hash-chain memory, as a scheduler would, and checks every state it is given."""

import numpy as np

from lab.simulate.policies import LeastRecentlyUsed
from leftoff.cache.cache import Cache
from leftoff.cache.costs import Costs
from leftoff.cache.policy import Policy
from leftoff.cache.restore import Stay
from leftoff.cache.turn import Turn
from leftoff.engine.memory.base import MemoryKind
from leftoff.types import Logits, Prompt, Tokens
from tests.cache.chain import BYTES_PER_TOKEN, ChainMemory, chain
from tests.cache.trees import UNLIMITED, Clock


def logits_of(tokens: Tokens) -> Logits:
    """Stands for the model's answer: known from the tokens alone."""
    return np.array([chain(tokens)[-1] % 1000003], np.float32)


def slowed_by(ms_per_cell: float) -> Costs:
    """Costs of an engine where each idle cell slows a step down by so much, and loading 100 tokens takes some ms."""
    costs = Costs(load_bytes_per_ms=100 * BYTES_PER_TOKEN, reply_tokens=10.0)
    for num_cells in (0, 1000, 2000, 3000):
        costs.step_by_cells.add(num_cells, 20.0 + ms_per_cell * num_cells)
        costs.token_by_cells.add(num_cells, 1.0)
    return costs


class Driver:
    """One request after the other, or several at once."""

    def __init__(self, cache: Cache, memory: ChainMemory, chunk: int = 64) -> None:
        self.cache = cache
        self.memory = memory
        self.chunk = chunk

    def begin(self, prompt: Prompt, namespace: str = "") -> Turn | None:
        turn = self.cache.begin(prompt, namespace)
        if turn is not None:
            self.memory.assert_holds(turn.seq, prompt.tokens[: turn.report.reused])
            assert turn.report.reused + turn.report.computed == prompt.length
            assert sum(part.num_tokens for part in turn.report.rereads) == turn.report.computed
        return turn

    def read(self, turn: Turn, num_tokens: int | None = None) -> None:
        """Reads the prompt to its end, or only some more of it."""
        limit = turn.prompt.length if num_tokens is None else min(turn.prompt.length, turn.position + num_tokens)
        while turn.position < limit:
            end = min(turn.next_chunk_end, turn.position + self.chunk, limit)
            chunk = turn.prompt.tokens[turn.position : end]
            self.cache.make_cells(chunk.size)
            self.memory.decode(turn.seq, chunk)
            at_end = end == turn.prompt.length
            self.cache.advance(turn, chunk, logits_of(turn.prompt.tokens) if at_end else None)
        if turn.logits is not None:
            assert turn.logits == logits_of(turn.prompt.tokens), "logits kept for another prompt"

    def reply(self, turn: Turn, tokens: Tokens) -> None:
        for token in tokens:
            self.cache.make_cells(1)
            self.memory.decode(turn.seq, np.array([token], np.int32))
            self.cache.advance(turn, np.array([token], np.int32))

    def request(self, prompt: Prompt, reply: Tokens | None = None, namespace: str = "") -> Turn:
        """A whole turn."""
        turn = self.begin(prompt, namespace)
        assert turn is not None
        self.read(turn)
        if reply is not None:
            self.reply(turn, reply)
            self.memory.assert_holds(turn.seq, np.concatenate([prompt.tokens, reply]))
        self.cache.finish(turn)
        return turn


class Table(Driver):
    """A driver with its own cache and memory."""

    def __init__(
        self,
        kind: MemoryKind,
        *,
        num_slots: int = 1,
        num_spares: int = 0,
        budget_bytes: int = UNLIMITED,
        num_cells: int = 4096,
        seen_tokens: int = 1 << 20,
        policy: Policy | None = None,
        costs: Costs | None = None,
        stay: Stay | None = None,
    ) -> None:
        memory = ChainMemory(kind, num_slots + num_spares, num_cells)
        cache = Cache(
            memory,
            num_slots=num_slots,
            budget_bytes=budget_bytes,
            policy=policy or LeastRecentlyUsed(),
            clock=Clock(),
            page_tokens=32,
            seen_tokens=seen_tokens,
            costs=costs,
            stay=stay,
        )
        super().__init__(cache, memory)

    def ask(self, tokens: Tokens, namespace: str = "") -> str:
        """A whole turn; the line of its report."""
        turn = self.request(Prompt(tokens), namespace=namespace)
        self.cache.check_integrity()
        return turn.report.line()
