"""Drives a cache over a real engine, as a scheduler would: one request after the other, with greedy replies."""

from collections.abc import Sequence

import numpy as np

from leftoff.cache.cache import Cache
from leftoff.cache.turn import Turn
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.types import Logits, Tokens
from tests.cache.scripts import Served, Step

Ends = tuple[int, ...]


class RealServer:
    """Decodes in chunks up to the turn's next stop. Every token of a reply is decoded, the last one too.

    It remembers in which chunks each prefix was read: read in the same ones, a prompt gives the same bits.
    """

    def __init__(self, engine: LlamaEngine, cache: Cache) -> None:
        self.engine = engine
        self.cache = cache
        self.chunks: dict[bytes, Ends] = {b"": ()}

    def serve(self, step: Step) -> Served:
        turn = self.cache.begin(step.prompt)
        assert turn is not None
        logits = self._read(turn)
        reply: list[int] = []
        for _ in range(step.num_reply):
            reply.append(int(logits.argmax()))
            logits = self._decode(turn, np.array(reply[-1:], np.int32))
        self.cache.finish(turn)
        return Served(np.array(reply, np.int32), turn.report.computed)

    def _read(self, turn: Turn) -> Logits:
        logits = turn.logits
        while turn.is_reading:
            end = min(turn.next_chunk_end, turn.position + self.engine.batch_tokens)
            logits = self._decode(turn, turn.prompt.tokens[turn.position : end])
        assert logits is not None
        return logits

    def _decode(self, turn: Turn, chunk: Tokens) -> Logits:
        before = self.chunks.get(turn.sequence.tokens.tobytes(), (turn.position,))
        was_reading = turn.is_reading
        self.cache.make_cells(chunk.size)
        (row,) = self.engine.decode([Work(turn.seq, chunk)])
        logits = self.engine.logits(row)
        is_end = was_reading and turn.position + chunk.size == turn.prompt.length
        self.cache.advance(turn, chunk, logits.copy() if is_end else None)
        self.chunks.setdefault(turn.sequence.tokens.tobytes(), (*before, turn.position))
        return logits


def doubts(engine: LlamaEngine, text: Tokens, ends: Sequence[int]) -> Logits:
    """How far below its own favourite an engine that starts cold ranks each token of a text, in standard deviations.

    Zero where it would have said the same. Near zero where two tokens are as good, and rounding decides.
    """
    engine.memory.drop(0)
    below, start = [0.0], 0
    for end in ends:
        (last,) = engine.decode([Work(0, text[start:end], all_logits=True)])
        for at, token in enumerate(text[start + 1 : end + 1], start + 1):
            logits = engine.logits(last - end + at)
            below.append((logits.max() - logits[token]) / logits.std())
        start = end
    engine.memory.drop(0)
    return np.array(below, np.float32)
