"""A draft model follows a reply, guesses, and takes its guesses back; what it has read is kept and restored."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from leftoff.cache.cache import Cache
from leftoff.cache.capacity import TreeLock
from leftoff.cache.costs import Costs
from leftoff.drafts.draft_model import DraftModel
from leftoff.drafts.guesses import Reply
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.types import Prompt, Tokens
from tests.engine.scenario import save
from tests.factory import model_path, small_vocabulary

KINDS = ("llama", "qwen35", "gemma3", "mamba2")
LENGTH = 203
SETTINGS = ContextSettings(num_cells=1024, num_sequences=1, threads=1)


@dataclass
class Bench:
    """A model, its cache, and a draft model, which is the same one."""

    engine: LlamaEngine
    cache: Cache
    draft: LlamaEngine
    model: DraftModel

    def begin(self, tokens: Tokens, namespace: str = "") -> Reply:
        """Reads all but the last token, which the reply begins with."""
        turn = self.cache.begin(Prompt(tokens[:-1]), namespace)
        assert turn is not None
        while turn.is_reading:
            self.engine.decode([Work(turn.seq, left := turn.next_chunk(512), logits=False)])
            self.cache.advance(turn, left)
        return Reply(namespace, turn, Work(turn.seq, tokens[-1:]), 100.0)

    def write(self, reply: Reply, tokens: list[int]) -> Reply:
        """The reply goes on with these tokens."""
        decoded = np.array([*reply.work.tokens, *tokens[:-1]], np.int32)
        self.engine.decode([Work(reply.turn.seq, decoded)])
        self.cache.advance(reply.turn, decoded)
        return reply._replace(work=Work(reply.turn.seq, np.array(tokens[-1:], np.int32)))

    def greedy(self, reply: Reply, num_tokens: int) -> list[int]:
        """What the model says next, decoded token by token and taken back."""
        memory, seq, said = self.engine.memory, reply.turn.seq, [*reply.work.tokens.tolist()]
        length = memory.length(seq)
        memory.hold(seq)
        for _ in range(num_tokens):
            (row,) = self.engine.decode([Work(seq, np.array(said[-1:], np.int32))])
            said.append(int(self.engine.logits(row).argmax()))
        memory.settle(seq, length)
        return said[1:]


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    with open_bench(request.param) as bench:
        yield bench


class open_bench:  # noqa: N801
    def __init__(self, main: str, draft: str = "", ram_bytes: int = 1 << 28) -> None:
        self._names, self._ram_bytes = (main, draft or main), ram_bytes

    def __enter__(self) -> Bench:
        engine, draft = (LlamaEngine.open(model_path(name), SETTINGS) for name in self._names)
        engine.draft = draft
        cache = Cache(engine.memory, num_slots=1, budget_bytes=1 << 28)
        costs = Costs(prefill_tokens_per_ms=100.0)  # so much is read at once
        beside = Cache(draft.memory, num_slots=1, budget_bytes=self._ram_bytes, costs=costs)
        model = DraftModel(draft, beside, engine.model.vocabulary.size, TreeLock())
        self._bench = Bench(engine, cache, draft, model)
        return self._bench

    def __exit__(self, *_: object) -> None:
        self._bench.engine.close()


def words(num_tokens: int, seed: int = 1) -> Tokens:
    return np.random.default_rng(seed).choice(small_vocabulary().words, num_tokens).astype(np.int32)


def test_the_same_model_guesses_what_comes(bench: Bench) -> None:
    reply = bench.begin(words(LENGTH))
    expected = bench.greedy(reply, 7)
    assert bench.model.guess(reply, 7) == bench.model.guess(reply, 7) == expected
    reply = bench.write(reply, expected)
    assert bench.model.guess(reply, 5) == bench.greedy(reply, 5), "after a draft that was right"
    reply = bench.write(reply, words(3, 2).tolist())
    assert bench.model.guess(reply, 5) == bench.greedy(reply, 5), "and after one that was wrong"


def test_guesses_leave_no_trace_in_its_state(bench: Bench) -> None:
    """Its state after many guesses has the bytes of one that has read the same tokens and guessed nothing."""
    tokens, rng = words(LENGTH, 3), np.random.default_rng(3)
    reply, pieces = bench.begin(tokens), [tokens]
    for _ in range(12):
        assert len(bench.model.guess(reply, 7)) == 7
        pieces.append(words(int(rng.integers(1, 5)), int(rng.integers(1000))))
        reply = bench.write(reply, pieces[-1].tolist())
    assert len(bench.model.guess(reply, 7)) == 7
    whole = np.concatenate(pieces)
    assert bench.draft.memory.length(0) == whole.size
    drafted = save(bench.draft, 0).content
    bench.draft.memory.drop(0)
    for piece in pieces:
        bench.draft.decode([Work(0, piece)])
    assert save(bench.draft, 0).content == drafted
    bench.draft.decode([Work(0, words(1))])
    assert save(bench.draft, 0).content != drafted, "the control: one token more shows"


def test_what_it_has_read_is_kept_and_restored(bench: Bench) -> None:
    """A conversation goes on after another one."""
    tokens = words(LENGTH, 4)
    reply = bench.begin(tokens)
    assert len(bench.model.guess(reply, 5)) == 5
    bench.model.tidy(lambda: False)
    bench.cache.finish(reply.turn)
    other = bench.begin(words(LENGTH, 5), "other")
    assert bench.model.guess(other, 5) == bench.greedy(other, 5)
    bench.cache.finish(other.turn)
    bench.model.cache.costs.prefill_tokens_per_ms = 1.0
    again = bench.begin(np.concatenate([tokens, words(20, 6)]))
    assert bench.model.lag_ms(again) < 0.5 * bench.model.cache.costs.prefill_ms(LENGTH), "most of it is not read again"
    assert bench.model.guess(again, 5) == bench.greedy(again, 5)
    assert bench.model._turn is not None
    assert bench.model._turn.report.reused >= LENGTH - 1
    bench.model.cache.check_integrity()
    bench.cache.finish(again.turn)


def test_tenants_are_apart_and_forgotten() -> None:
    with open_bench("llama") as bench:
        tokens = words(LENGTH, 6)
        for namespace, reused in (("one", False), ("two", False), ("one", True)):
            reply = bench.begin(tokens, namespace)
            bench.model.guess(reply, 3)
            assert bench.model._turn is not None
            assert (bench.model._turn.report.reused > 0) == reused
            bench.cache.finish(reply.turn)
        bench.model.forget(lambda name: name == "one")
        assert bench.model.cache.memory.length(0) == 0 or bench.model.cache.sequences.idle[0].namespace == "two"
        reply = bench.begin(tokens, "one")
        bench.model.guess(reply, 3)
        assert bench.model._turn is not None
        assert bench.model._turn.report.reused == 0


def test_a_long_prompt_is_read_between_steps() -> None:
    with open_bench("llama") as bench:
        bench.model.cache.costs.prefill_tokens_per_ms = 0.1  # a slow machine: as few at once as possible
        reply = bench.begin(words(300, 7))
        lags = []
        while not (guessed := bench.model.guess(reply, 3)):
            bench.model.cache.costs.prefill_tokens_per_ms = 0.1
            lags.append(bench.model.lag_ms(reply))
        assert len(lags) == 300 // 64
        assert lags == sorted(lags, reverse=True)
        assert guessed == bench.greedy(reply, 3)


def test_a_reply_that_does_not_fit_is_not_followed() -> None:
    with open_bench("llama") as bench:
        bench.model.cache.memory.num_cells = 100  # type: ignore[misc]
        reply = bench.begin(words(LENGTH, 8))
        assert math.isinf(bench.model.lag_ms(reply))
        assert bench.model.guess(reply, 3) == []


def test_an_error_ends_the_drafts_of_one_reply(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_bench("qwen35") as bench:
        reply = bench.begin(words(LENGTH, 9))
        bench.model.guess(reply, 3)
        monkeypatch.setattr(bench.draft.model.vocabulary, "size", 3)
        assert bench.model.guess(reply, 3) == []
        assert "no drafts by" in caplog.text
        monkeypatch.undo()
        assert bench.model.guess(reply, 3) == [], "not for this one"
        bench.cache.finish(reply.turn)
        other = bench.begin(words(LENGTH, 10))
        assert bench.model.guess(other, 3) == bench.greedy(other, 3)


def test_tokens_that_the_model_lacks_are_not_guessed() -> None:
    with open_bench("llama") as bench:
        reply = bench.begin(words(LENGTH, 11))
        expected = bench.model.guess(reply, 1)
        bench.model._num_tokens = expected[0]
        bench.model._first = 0
        bench.model._end()
        assert bench.model.guess(reply, 1)[0] < expected[0]


def test_it_sleeps_and_wakes_with_the_engine() -> None:
    with open_bench("llama") as bench:
        bench.draft.model.may_sleep = bench.engine.model.may_sleep = True
        reply = bench.begin(tokens := words(LENGTH, 12))
        expected = bench.model.guess(reply, 5)
        bench.cache.finish(reply.turn)
        bench.cache.leave_engine()
        bench.model.leave_engine()
        assert bench.draft.memory.length(0) == 0
        again = bench.begin(tokens)
        assert bench.model.guess(again, 5) == expected
        assert bench.model._turn is not None
        assert bench.model._turn.report.reused > LENGTH // 2
