"""From settings to what runs: what was left open is chosen before the model is loaded."""

import dataclasses
from pathlib import Path

import pytest

from leftoff.config import ALL_LAYERS, Settings
from leftoff.engine.errors import EngineError, InputError, ModelError
from leftoff.host import drafts
from leftoff.host.build import Fitted, fitted, open_host
from tests.factory import Scale, model_path

TRAINED = 2048


def settings(**changes: object) -> Settings:
    model = str(model_path("gpt-oss", Scale(context_length=TRAINED)))
    values: dict[str, object] = {"model": model, "threads": 1, "slots": 2, "ram": 64, "disk": 0}
    return Settings(**(values | changes))  # type: ignore[arg-type]


def test_the_context_is_chosen_and_told() -> None:
    fit = fitted(settings())
    assert fit.settings == settings(ctx=TRAINED)
    assert fit.line.startswith("2,048 tokens of context: ")
    assert all(0 < fit.needs[device] < fit.room[device] for device in fit.room)


@pytest.mark.parametrize(
    "asked",
    [
        {"ctx": 512},
        {"ctx": 4096, "gpu_layers": 3},
        {"ctx": 1024, "gpu_layers": ALL_LAYERS, "n_cpu_moe": 2},
        {"ctx": 1024, "cpu_moe": True, "override_tensor": ("attn=CPU",), "mmap": False},
    ],
)
def test_what_was_asked_for_is_kept(asked: dict[str, object]) -> None:
    assert fitted(settings(**asked)).settings == settings(**asked)


def test_without_fit_nothing_is_chosen_and_the_model_says_how_long_a_context_is() -> None:
    assert fitted(settings(fit=False)) == Fitted(settings(fit=False))
    for asked in (settings(), settings(fit=False)):
        with open_host(asked) as host:
            assert host.context_tokens == TRAINED


def test_all_settings_for_devices_reach_the_engine() -> None:
    asked = settings(
        ctx=1024,
        threads_batch=2,
        gpu_layers=1,
        n_cpu_moe=1,
        cache_type_k="f32",
        cache_type_v="bf16",
        flash_attn="on",
        device="none",
        override_tensor=("attn=CPU",),
        mmap=False,
        mlock=True,
    )
    with open_host(asked) as host:
        model, context = host.model.settings, host.engine.settings
    assert (model.gpu_layers, model.n_cpu_moe, model.devices, model.mmap, model.mlock) == (1, 1, ("none",), False, True)
    assert model.override_tensor == ("attn=CPU",)
    assert (context.threads, context.threads_batch, context.flash_attention) == (1, 2, "on")
    assert (context.kv_type, context.v_type, context.num_cells) == ("f32", "bf16", 1024)


def test_what_cannot_be_placed_is_refused_before_loading() -> None:
    with pytest.raises(InputError, match="--device CUDA9"):
        fitted(settings(device="CUDA9"))


def test_of_a_model_that_is_not_there_nothing_is_chosen() -> None:
    nowhere = dataclasses.replace(settings(), model="nowhere.gguf")
    assert fitted(nowhere) == Fitted(nowhere)
    with pytest.raises(ModelError, match=r"there is no model file at nowhere\.gguf"):
        open_host(nowhere)


def test_what_fails_after_the_cache_was_opened_leaves_its_folder_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = settings(model=str(model_path("llama")), ctx=512, disk=16, cache_dir=str(tmp_path), draft="tree")

    def fail(_: object) -> None:
        raise EngineError("no batch")

    with monkeypatch.context() as broken:
        broken.setattr(drafts, "measure_batches", fail)
        with pytest.raises(EngineError, match="no batch"):
            open_host(wanted)
    with open_host(wanted) as host:
        assert host.cache.disk is not None
