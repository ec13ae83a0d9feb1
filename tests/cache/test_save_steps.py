"""What would lie on a GPU is saved in steps while nothing runs. Ordinary memory counts as page-locked here."""

import time
from collections.abc import Sequence

import numpy as np
import pytest

from leftoff.cache.cache import Cache
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.memory.arena import Buffer
from leftoff.engine.memory.base import Page, Span
from leftoff.engine.memory.staging import Fill
from leftoff.types import Prompt, Tokens
from tests.cache.real import RealServer
from tests.engine.scenario import prompt, with_locked_memory
from tests.factory import model_path

SETTINGS = ContextSettings(num_cells=4096, num_sequences=3, threads=1)
PAGE_TOKENS = 32
LENGTH = 1200


def read(engine: LlamaEngine, cache: Cache, tokens: Tokens) -> str:
    turn = cache.begin(Prompt(tokens))
    assert turn is not None
    RealServer(engine, cache)._read(turn)
    cache.finish(turn)
    return turn.report.line()


@pytest.mark.parametrize("architecture", ["llama", "qwen35", "gemma3"])
def test_a_request_that_comes_finds_no_copies_under_way_and_nothing_is_saved_twice(
    architecture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LlamaEngine.open(model_path(architecture), SETTINGS) as engine:
        steps_of_a_page = 4 * 3  # of a group, of which the locked memory has three
        with with_locked_memory(engine, 4 * steps_of_a_page * engine.memory.page_bytes(PAGE_TOKENS)):
            memory, staging = engine.memory, engine.context.staging
            cache = Cache(memory, num_slots=2, budget_bytes=1 << 30, page_tokens=PAGE_TOKENS)
            filled, save_pages = staging._filled, memory.save_pages
            saved: list[Span] = []
            was_copying: list[bool] = []

            def slowly(nbytes: int, fill: Fill) -> Buffer:
                time.sleep(0.01)
                return filled(nbytes, fill)

            def watched(seq: int, spans: Sequence[Span]) -> list[Page]:
                was_copying.append(memory.is_copying)
                saved.extend(spans)
                return save_pages(seq, spans)

            monkeypatch.setattr(staging, "_filled", slowly)
            monkeypatch.setattr(memory, "save_pages", watched)
            tokens = prompt(engine, LENGTH, 1)
            read(engine, cache, tokens)
            saved.clear()
            was_copying.clear()
            cache.save_idle(lambda: len(was_copying) == 3)
            num_before = len(was_copying)
            cache.save_idle(lambda: False)
            assert num_before == 3, "a request came, and went"
            assert len(was_copying) > 6
            assert not any(was_copying[:-1]), "the last is the rest of a page, after all steps"
            assert len(set(saved)) == len(saved) == -(-LENGTH // PAGE_TOKENS)
            for sequence in cache.sequences:
                if not sequence.is_empty:
                    cache.drop_sequence(sequence)
            assert f"reused {LENGTH:,} of" in read(engine, cache, np.append(tokens, prompt(engine, 10, 2)))
