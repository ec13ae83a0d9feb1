"""Types of keys and values apart, and attention without flash: pages have the right size, and a resume is exact."""

import numpy as np
import pytest

from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.errors import InputError
from leftoff.engine.memory.base import MemoryKind
from leftoff.hub.reference import default_model
from tests.engine.scenario import load, prompt, read, save
from tests.factory import ARCHITECTURES, model_path

PAGE = 64


def settings(keys: str = "f16", values: str = "", flash: str = "auto") -> ContextSettings:
    return ContextSettings(
        num_cells=1024,
        num_sequences=2,
        threads=1,
        kv_type=keys,
        values_type=values,
        flash_attention=flash,
    )


def page_bytes(architecture: str, keys: str, values: str) -> int:
    with LlamaEngine.open(model_path(architecture), settings(keys, values)) as engine:
        read(engine, 0, prompt(engine, PAGE))
        return engine.memory.save_page(0, 0, PAGE).nbytes


def assert_resumes_exactly(engine: LlamaEngine, noise: float = 0.0) -> None:
    """Read to 100, save, drop, load, read on: as if it had never left. The state is the same, bit for bit."""
    tokens = prompt(engine, 140)
    read(engine, 0, tokens[:100])
    saved = save(engine, 0)
    uninterrupted = read(engine, 0, tokens[100:])
    engine.memory.drop(0)
    load(engine, 0, saved)
    assert save(engine, 0).content == saved.content
    assert np.abs(read(engine, 0, tokens[100:]) - uninterrupted).max() <= noise


def fingerprint(**changes: str) -> str:
    with LlamaEngine.open(model_path("llama"), settings(**changes)) as engine:
        return engine.memory.fingerprint


@pytest.mark.parametrize("architecture", ["llama", "qwen35", "gemma3"])
def test_keys_and_values_each_take_the_room_of_their_type(architecture: str) -> None:
    small, large = page_bytes(architecture, "f16", "f16"), page_bytes(architecture, "f32", "f32")
    for keys, values in (("f16", "f32"), ("f32", "f16")):
        assert 2 * page_bytes(architecture, keys, values) == small + large


@pytest.mark.parametrize(("keys", "values"), [("f16", "f32"), ("f32", "bf16")])
@pytest.mark.parametrize("architecture", ["llama", "qwen35", "gemma3", "gpt-oss"])
def test_a_resume_with_types_apart_is_exact(architecture: str, keys: str, values: str) -> None:
    with LlamaEngine.open(model_path(architecture), settings(keys, values)) as engine:
        assert engine.memory.kind.has_pages
        assert_resumes_exactly(engine)


@pytest.mark.parametrize(("keys", "values"), [("q8_0", "f16"), ("f16", "q8_0"), ("q8_0", "iq4_nl")])
def test_a_resume_with_small_types_is_exact(keys: str, values: str) -> None:
    with LlamaEngine.open(default_model(), settings(keys, values)) as engine:
        assert engine.memory.kind.has_pages
        assert_resumes_exactly(engine)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_without_flash_attention_a_resume_is_exact_and_whole(architecture: str) -> None:
    with LlamaEngine.open(model_path(architecture), settings(flash="off")) as engine:
        assert engine.memory.kind in (MemoryKind.OPAQUE, MemoryKind.RECURRENT)
        # some builds add up loaded cells in another order than those that were read
        assert_resumes_exactly(engine, noise=0.005)


def test_small_keys_without_flash_attention_are_exact() -> None:
    with LlamaEngine.open(default_model(), settings("q8_0", "f16", flash="off")) as engine:
        assert_resumes_exactly(engine)


def test_small_values_without_flash_attention_are_refused_by_name() -> None:
    with pytest.raises(InputError, match=r"--flash-attn off: .* values of type q8_0 only with .* --cache-type-v f16"):
        settings("f16", "q8_0", flash="off")


def test_states_of_other_types_or_without_flash_attention_are_never_mistaken() -> None:
    ways = [
        fingerprint(),
        fingerprint(keys="f32"),
        fingerprint(values="f32"),
        fingerprint(keys="f32", values="f16"),
        fingerprint(flash="off"),
    ]
    assert len({*ways}) == len(ways)
    assert fingerprint(keys="f16", values="f16", flash="on") == fingerprint()
