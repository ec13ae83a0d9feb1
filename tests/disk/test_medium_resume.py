"""A new engine goes on from what an earlier one left on disk, to the bit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from leftoff.cache.blob_store import Item
from leftoff.disk.medium import open_folder
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.memory.base import Page, Snapshot, WindowPage
from tests.disk.stores import WAIT_S, record_of, written
from tests.engine.conftest import SETTINGS
from tests.engine.scenario import Saved, cold, load, prompt, read, reply, save
from tests.factory import model_path

LENGTH, REPLY = 130, 8


@pytest.mark.parametrize("architecture", ["llama", "qwen35", "gemma3", "rwkv7"])
def test_the_next_process_goes_on_where_the_last_one_stopped(tmp_path: Path, architecture: str) -> None:
    with LlamaEngine.open(model_path(architecture), SETTINGS) as engine:
        tokens = prompt(engine, LENGTH)
        logits, expected, after = cold(engine, tokens, REPLY)
        read(engine, 0, tokens)
        saved = save(engine, 0)
        items: list[Item] = list(saved.pages)
        if saved.snapshot is not None:
            items += (*saved.snapshot.window, saved.snapshot)
        store = open_folder(tmp_path, engine.memory.fingerprint, engine.context.arena)
        written(store, items, tokens)
        store.close(WAIT_S)
    with LlamaEngine.open(model_path(architecture), SETTINGS) as engine:
        store = open_folder(tmp_path, engine.memory.fingerprint, engine.context.arena)
        (kept,) = store.stored_paths()
        assert np.array_equal(kept.tokens, tokens)
        found = [answer.result(WAIT_S) for answer in store.get([record_of(item) for item in kept.items])]
        window = tuple(item for item in found if isinstance(item, WindowPage))
        pages = tuple(item for item in found if isinstance(item, Page) and item not in window)
        snapshot = next((replace(item, window=window) for item in found if isinstance(item, Snapshot)), None)
        load(engine, 0, Saved(LENGTH, pages, snapshot))
        assert save(engine, 0).content == saved.content
        replied, after_resume = reply(engine, 0, logits, REPLY)
        assert replied == expected
        assert all(map(np.array_equal, after_resume, after))
        store.close(WAIT_S)


def test_another_kv_type_finds_nothing(tmp_path: Path) -> None:
    other = type(SETTINGS)(num_cells=256, num_sequences=1, threads=1, kv_type="f32")
    with LlamaEngine.open(model_path("llama"), SETTINGS) as engine:
        tokens = prompt(engine, 50)
        read(engine, 0, tokens)
        store = open_folder(tmp_path, engine.memory.fingerprint, engine.context.arena)
        written(store, save(engine, 0).pages, tokens)
        store.close(WAIT_S)
    with LlamaEngine.open(model_path("llama"), other) as engine:
        store = open_folder(tmp_path, engine.memory.fingerprint, engine.context.arena)
        assert [*store.stored_paths()] == []
        store.close(WAIT_S)
