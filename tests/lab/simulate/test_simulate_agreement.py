"""The simulator and a real engine read the same tokens: one small trace is played through both.

Both are given the same costs, since measured ones would place snapshots elsewhere in each run. In the simulation a
block is one position; for the engine it is a run of tokens, and one page.
"""

from collections.abc import Iterator

import numpy as np
import pytest

from lab.simulate.leftoff_scheme import GivenCosts, OwnCache
from lab.simulate.llm import Llm
from lab.simulate.scheme import Budget
from lab.simulate.trace import Request
from leftoff.cache.cache import Cache
from leftoff.cache.placement import Placement
from leftoff.cache.policy import ValuePerByte
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.types import MessageSpan, Prompt, Tokens
from tests.factory import model_path
from tests.lab.simulate.traffic import BLOCK_TOKENS, HEADER_BLOCKS, traffic

BLOCKS_PER_S = 125.0
REPLAY_MS = 32.0  # four blocks between snapshots


@pytest.fixture(scope="module")
def engine() -> Iterator[LlamaEngine]:
    settings = ContextSettings(num_cells=4096, num_sequences=1, threads=1)
    with LlamaEngine.open(model_path("qwen35"), settings) as engine:
        yield engine


def placement(block_tokens: int) -> Placement:
    return Placement(
        smallest_gap=block_tokens,
        longest_replay_ms=REPLAY_MS,
        near_tokens=16 * block_tokens,
        chunk_tokens=64 * block_tokens,
        slack=0,
    )


class Server:
    """The cache over the engine, driven by a trace's requests."""

    def __init__(self, engine: LlamaEngine, budget_bytes: int) -> None:
        self._engine = engine
        self._now = 0.0
        engine.memory.drop(0)
        self.cache = Cache(
            engine.memory,
            num_slots=1,
            budget_bytes=budget_bytes,
            policy=ValuePerByte(),
            placement=placement(BLOCK_TOKENS),
            costs=GivenCosts(prefill_tokens_per_ms=BLOCKS_PER_S * BLOCK_TOKENS / 1000),
            clock=lambda: self._now,
            page_tokens=BLOCK_TOKENS,
        )

    def resumed(self, request: Request) -> int:
        self._now = request.time_s
        tokens = expanded(request.blocks(), self._engine.model.vocabulary.size)
        header_end = HEADER_BLOCKS * BLOCK_TOKENS
        messages = MessageSpan("system", 0, header_end), MessageSpan("user", header_end, tokens.size)
        turn = self.cache.begin(Prompt(tokens, messages))
        assert turn is not None
        while turn.is_reading:
            piece = tokens[turn.position : min(turn.next_chunk_end, turn.position + self._engine.batch_tokens)]
            self.cache.make_cells(piece.size)
            self._engine.decode([Work(turn.seq, piece)])
            self.cache.advance(turn, piece, np.empty(0, np.float32))
        self.cache.finish(turn)
        self.cache.save_idle()
        return turn.report.reused


def expanded(blocks: Tokens, vocabulary_size: int) -> Tokens:
    """The text that a list of blocks stands for."""
    texts = [np.random.default_rng(block).integers(0, vocabulary_size, BLOCK_TOKENS) for block in blocks.tolist()]
    return np.concatenate(texts).astype(np.int32)


def simulated(engine: LlamaEngine, budget_bytes: int) -> OwnCache:
    """A block is the unit here: all sizes and rates are a block's."""
    memory = engine.memory
    usual = GivenCosts()
    llm = Llm(
        "as the engine",
        bytes_per_token=memory.page_bytes(BLOCK_TOKENS),
        snapshot_bytes=memory.snapshot_bytes(BLOCK_TOKENS),
        prefill_tokens_per_s=BLOCKS_PER_S,
        load_bytes_per_s=1000 * usual.load_bytes_per_ms,
        save_bytes_per_s=1000 * usual.save_bytes_per_ms,
    )
    return OwnCache(llm, 1, Budget(budget_bytes), ValuePerByte, placement(1), page_tokens=1)


@pytest.mark.parametrize("num_states", [1000, 14, 9])
def test_both_read_the_same_tokens(engine: LlamaEngine, num_states: int) -> None:
    trace = traffic(seed=3, num_requests=40)
    budget_bytes = num_states * engine.memory.snapshot_bytes(BLOCK_TOKENS)
    server, simulation = Server(engine, budget_bytes), simulated(engine, budget_bytes)
    real = [server.resumed(request) for request in trace.requests]
    expected = [simulation.serve(request, request.blocks()).resumed for request in trace.requests]
    assert real == [BLOCK_TOKENS * blocks for blocks in expected]
    assert (server.cache.ram.budget.num_evictions > 0) == (num_states < 1000)
    assert server.cache.ram.budget.num_evictions == simulation.cache.ram.budget.num_evictions
