"""Where state moves to a GPU, the ring of a sliding window may wrap; snapshots and cuts stay right."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from leftoff.engine import context
from leftoff.engine.binding.library import Library
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.memory.arena import Arena, view_of
from leftoff.engine.memory.base import Share, Snapshot
from leftoff.engine.memory.staging import Staging
from leftoff.types import Logits, Tokens
from tests.engine.conftest import SETTINGS
from tests.factory import model_path

LENGTH = 550  # many times the ring
NOISE, WRONG = 0.05, 0.2  # of a logit: by the order of cells, and by another window


def staging(library: Library, arena: Arena) -> Staging:  # noqa: ARG001
    """As for a GPU, but the locked area is ordinary memory."""
    return Staging(arena, lambda nbytes: np.empty(nbytes, np.uint8), 1 << 22)


@pytest.fixture(scope="module", params=["gemma3", "gpt-oss", "lfm2-window"])
def engine(request: pytest.FixtureRequest) -> Iterator[LlamaEngine]:
    settings = replace(SETTINGS, batch_tokens=256, micro_batch_tokens=64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(context, "staging_for", staging)
        with LlamaEngine.open(model_path(request.param), settings) as engine:
            yield engine


def tokens_of(engine: LlamaEngine, seed: int, num_tokens: int) -> Tokens:
    size = engine.model.vocabulary.size
    return np.random.default_rng(seed).integers(10, size - 10, num_tokens).astype(np.int32)


def read(engine: LlamaEngine, seq: int, tokens: Tokens) -> Logits:
    for start in range(0, tokens.size, 100):
        (row,) = engine.decode([Work(seq, tokens[start : start + 100])])
    return engine.logits(row).copy()


def bytes_of(snapshot: Snapshot) -> list[bytes]:
    return [view_of(data).tobytes() for data in (*(page.data for page in snapshot.window), snapshot.data)]


def test_a_ring_that_has_wrapped_gives_the_same_logits(engine: LlamaEngine) -> None:
    tokens = tokens_of(engine, 1, LENGTH)
    alone = read(engine, 0, tokens)
    read(engine, 2, tokens_of(engine, 2, LENGTH))  # leaves the ring in another order
    beside = read(engine, 3, tokens)
    assert float(np.abs(alone - beside).max()) < NOISE


def test_snapshots_share_pages_and_restore_exactly(engine: LlamaEngine) -> None:
    memory, tokens = engine.memory, tokens_of(engine, 1, LENGTH)
    read(engine, 0, tokens[:450])
    first = memory.save_snapshot(0)
    read(engine, 0, tokens[450:460])
    second, whole = memory.save_snapshot(0, first.window), memory.save_snapshot(0)
    assert any(page in first.window for page in second.window), "they are ten tokens apart"
    expected = read(engine, 0, tokens[460:463])
    memory.restore(1, 460, pages=[memory.save_page(0, 0, 460).whole()], snapshot=second)
    assert bytes_of(memory.save_snapshot(1)) == bytes_of(whole)
    assert float(np.abs(read(engine, 1, tokens[460:463]) - expected).max()) < NOISE


def test_another_window_shows(engine: LlamaEngine) -> None:
    memory, tokens = engine.memory, tokens_of(engine, 1, LENGTH)
    read(engine, 0, tokens[:460])
    right = memory.save_snapshot(0)
    expected = read(engine, 0, tokens[460:463])
    read(engine, 2, tokens_of(engine, 2, 460))
    wrong = replace(right, window=memory.save_snapshot(2).window)
    memory.restore(1, 460, pages=[memory.save_page(0, 0, 460).whole()], snapshot=wrong)
    assert float(np.abs(read(engine, 1, tokens[460:463]) - expected).max()) > WRONG


def test_a_fork_has_a_window_of_its_own(engine: LlamaEngine) -> None:
    memory, tokens = engine.memory, tokens_of(engine, 1, LENGTH)
    read(engine, 0, tokens[:450])
    for seq in (1, 2, 3):
        memory.restore(seq, 450, share=Share(0, 450))
        read(engine, seq, tokens_of(engine, seq + 5, 300))  # would find no cells if old ones were shared for ever
    expected = read(engine, 0, tokens[450:])
    assert expected.size == engine.model.vocabulary.size
