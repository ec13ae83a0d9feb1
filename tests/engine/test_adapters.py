"""Adapters of a context: a set acts on what is decoded from then on, and nothing of it is left when it is changed."""

from pathlib import Path

import numpy as np
import pytest

from leftoff.adapters import NO_ADAPTERS, Adapter, AdapterSet
from leftoff.engine.adapter_file import LoraFile, read_control_vectors, read_lora
from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.errors import EngineError, ModelError
from leftoff.engine.model import Model
from leftoff.types import Logits
from tests.factory import model_path
from tests.factory.adapters import control_vector_bytes, lora_bytes, lora_path

TOKENS = np.arange(5, 60, dtype=np.int32)


def files(architecture: str) -> tuple[LoraFile, ...]:
    model = model_path(architecture)
    return tuple(read_lora(lora_path(model, seed), model, 1 << 20) for seed in (1, 2))


def read(engine: LlamaEngine, adapters: AdapterSet) -> Logits:
    engine.memory.clear()
    engine.use(adapters)
    (row,) = engine.decode([Work(0, TOKENS)])
    return engine.logits(row).copy()


@pytest.mark.parametrize("architecture", ["llama", "qwen35", "gemma3", "mamba2"])
def test_a_set_changes_logits_and_leaves_nothing_behind(architecture: str) -> None:
    one, two = (Adapter(file.fingerprint) for file in files(architecture))
    sets = [[], [one], [Adapter(one.fingerprint, 0.5)], [two], [one, two]]
    settings = ContextSettings(num_cells=512, threads=1, loras=files(architecture))
    with LlamaEngine.open(model_path(architecture), settings) as engine:
        first, again = ([read(engine, AdapterSet.of(each)) for each in sets] for _ in range(2))
    assert all(map(np.array_equal, first, again))
    assert min(np.abs(left - right).max() for left in first for right in first if left is not right) > 0.5


def test_a_set_that_is_used_already_is_not_set_again() -> None:
    with LlamaEngine.open(model_path("llama"), ContextSettings(num_cells=512, loras=files("llama"))) as engine:
        one = AdapterSet.of([Adapter(files("llama")[0].fingerprint)])
        assert [engine.use(each) for each in (NO_ADAPTERS, one, one, NO_ADAPTERS)] == [False, True, False, True]
        with pytest.raises(EngineError, match="not loaded"):
            engine.use(AdapterSet.of([Adapter("0" * 64)]))


def test_adapters_are_there_again_after_a_sleep_and_are_the_same(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(lora_bytes(model_path("llama"), 1))
    file = read_lora(path, model_path("llama"), 1 << 20)
    one = AdapterSet.of([Adapter(file.fingerprint)])
    model = Model(model_path("llama"), may_sleep=True)
    with LlamaEngine(model, ContextSettings(num_cells=512, threads=1, loras=(file,))) as engine:
        before = read(engine, one)
        engine.sleep()
        engine.wake()
        assert np.array_equal(read(engine, one), before)
        engine.sleep()
        path.write_bytes(lora_bytes(model_path("llama"), 2))
        with pytest.raises(ModelError, match="not the adapter any more"):
            engine.wake()
        assert engine.is_asleep


def test_a_control_vector_acts_and_its_states_are_its_own(tmp_path: Path) -> None:
    path, model = tmp_path / "v.gguf", model_path("qwen35")
    path.write_bytes(control_vector_bytes(model, 1))
    control = read_control_vectors([(path, 1.0)], model, (0, 0))
    found, fingerprints = [], []
    for settings in (ContextSettings(num_cells=512), ContextSettings(num_cells=512, control=control)):
        with LlamaEngine.open(model, settings) as engine:
            found.append(read(engine, NO_ADAPTERS))
            fingerprints.append(engine.memory.fingerprint)
    assert np.abs(found[0] - found[1]).max() > 0.5
    assert fingerprints[0] != fingerprints[1]
