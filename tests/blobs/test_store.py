"""The blob store over the smallest medium there is: the one that the documentation shows."""

import re
import threading
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from leftoff.blobs.blob import Blob
from leftoff.cache.blob_store import Item, Record
from leftoff.cache.blob_tier import TierSettings
from leftoff.cache.cache import Cache
from leftoff.cache.costs import Costs
from leftoff.engine.errors import BlobError
from leftoff.engine.memory.arena import Arena
from leftoff.engine.memory.base import MemoryKind
from leftoff.types import Prompt
from tests.cache.chain import ChainMemory
from tests.cache.driver import Driver
from tests.cache.trees import UNLIMITED
from tests.disk.stores import content, page, path_of, snapshot
from tests.patience import PATIENCE_S

PAGE = Path(__file__).parents[2] / "docs" / "add-a-tier.md"


@pytest.fixture
def shown() -> dict[str, Any]:
    names: dict[str, Any] = {}
    for code in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(code, names)
    return names


def test_what_is_put_comes_back_to_the_next_store(shown: dict[str, Any]) -> None:
    medium, tokens = shown["DictMedium"](), path_of(300)
    store = shown["open_dict"](medium)
    items: list[Item] = [page(0, 200), snapshot(200)]
    records = [store.put(item, "", tokens) for item in items]
    assert [content(future.result(PATIENCE_S)) for future in store.get(records)] == [*map(content, items)]
    assert store.flush(PATIENCE_S)
    store.remove(records[0])
    store.close(PATIENCE_S)
    again = shown["open_dict"](medium)
    ((kept,),) = [path.items for path in again.stored_paths()]
    assert content(again.get([kept.data])[0].result(PATIENCE_S)) == content(items[1])
    with pytest.raises(BlobError):
        again.get([Record("unknown", 1, again)])[0].result(PATIENCE_S)
    again.close(PATIENCE_S)


def test_a_cache_resumes_from_it_after_a_restart(shown: dict[str, Any]) -> None:
    medium, reused = shown["DictMedium"](), []
    for length in (150, 160):
        memory = ChainMemory(MemoryKind.HYBRID)
        cache = Cache(
            memory,
            num_slots=1,
            budget_bytes=UNLIMITED,
            tiers=[TierSettings(shown["open_dict"](medium), UNLIMITED)],
            costs=Costs(prefill_tokens_per_ms=0.01),
            page_tokens=32,
        )
        reused.append(Driver(cache, memory).request(Prompt(np.arange(length, dtype=np.int32))).report.reused)
        cache.close(PATIENCE_S)
    assert reused == [0, 150]


def test_closing_does_not_wait_for_a_read_that_hangs(shown: dict[str, Any]) -> None:
    reads, gate, is_closed = threading.Event(), threading.Event(), threading.Event()

    base: Any = shown["DictMedium"]

    class HangingMedium(base):  # type: ignore[misc]
        def read(self, blob: Blob, arena: Arena) -> Item:
            reads.set()
            gate.wait(PATIENCE_S)
            return cast(Item, super().read(blob, arena))

        def close(self) -> None:
            is_closed.set()

    store = shown["open_dict"](HangingMedium())
    record = store.put(page(0, 200), "", path_of(300))
    assert store.flush(PATIENCE_S)
    (future,) = store.get([record])
    assert reads.wait(PATIENCE_S)
    closing = threading.Thread(target=store.close, args=(PATIENCE_S,))
    closing.start()
    assert is_closed.wait(PATIENCE_S)
    gate.set()
    closing.join()
    assert content(future.result(PATIENCE_S)) == content(page(0, 200)), "who waits for it gets it all the same"
