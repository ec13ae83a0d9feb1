"""Which adapters a request gets: those it names, or those that act unasked."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from leftoff.adapters import NO_ADAPTERS
from leftoff.engine.errors import ModelError
from leftoff.host.adapters import AdapterError, HostAdapters
from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.setting import SettingError
from tests.behaviour.adapters import adapter_files
from tests.factory import MTP, model_path
from tests.factory.adapters import lora_path
from tests.server.fixtures import settings

MODEL = "llama"
FILES = adapter_files(model_path(MODEL))
UNNAMED = FILES["b"].partition("=")[2]


@pytest.fixture(scope="module")
def host() -> Iterator[ModelHost]:
    lora = (FILES["a"], f"{UNNAMED}:0.5", FILES["d"], FILES["half"])
    with open_host(settings(MODEL, lora=lora)) as host:
        yield host


def scales(adapters: HostAdapters, *args: object) -> list[float]:
    return [each.scale for each in adapters.asked(*args).adapters]  # type: ignore[arg-type]


def test_one_without_a_name_acts_unasked_as_with_llama_server(host: ModelHost) -> None:
    adapters = host.adapters
    unnamed = adapters.all[1]
    assert unnamed.name == Path(UNNAMED).stem
    for model in (None, "", "tiny", "tiny:latest", "any", "any:thing"):
        (only,) = adapters.asked(model).adapters
        assert (only.fingerprint, only.scale) == (unnamed.file.fingerprint, 0.5)


def test_one_is_chosen_by_its_name_with_its_scale(host: ModelHost) -> None:
    (only,) = host.adapters.asked("tiny:a").adapters
    (half,) = host.adapters.asked("tiny:half").adapters
    assert (only.scale, half.scale) == (1.0, 0.5)
    assert only.fingerprint == half.fingerprint
    assert host.adapters.asked("tiny:d").invocation


def test_a_request_may_give_the_scales_itself(host: ModelHost) -> None:
    asked = host.adapters.asked
    assert asked("tiny:a", []) == NO_ADAPTERS
    assert scales(host.adapters, None, [(0, 0.25)]) == [0.25]
    assert len(asked(None, [(0, 1.0), (1, 2.0)]).adapters) == 2
    assert scales(host.adapters, None, [(0, 1.0), (3, 0.5)]) == [1.5]  # the same file twice


@pytest.mark.parametrize(
    ("model", "given", "problem"),
    [
        (None, [(9, 1.0)], "no adapter 9: this model has 4"),
        (None, [(-1, 1.0)], "no adapter -1"),
        (None, [(0, 1.0), (2, 1.0)], "d is an aLoRA, which acts alone"),
        ("tiny:typo", None, "tiny has no adapter 'typo': choose one of a, "),
        ("tiny:a:0.3", None, "tiny has no adapter 'a:0.3'"),  # scales are given by `lora`
    ],
)
def test_what_cannot_be_is_told(
    host: ModelHost, model: str | None, given: list[tuple[int, float]] | None, problem: str
) -> None:
    with pytest.raises(AdapterError, match=problem):
        host.adapters.asked(model, given)


def test_the_scales_that_act_unasked_can_be_changed() -> None:
    with open_host(settings(MODEL, lora=(FILES["a"], UNNAMED), lora_init_without_apply=True)) as host:
        assert host.adapters.asked(None) == NO_ADAPTERS
        host.adapters.set_unasked([(1, 0.75)])
        assert scales(host.adapters, None) == [0.75]
        assert scales(host.adapters, "tiny:a") == [1.0]
        assert host.adapters.scales == [0.0, 0.75]


@pytest.mark.parametrize(
    ("lora", "problem"),
    [
        ((FILES["a"], FILES["a"]), "have the name 'a', two have it"),
        ((UNNAMED, FILES["d"].partition("=")[2]), "acts alone, so give it a name"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(lora: tuple[str, ...], problem: str) -> None:
    with pytest.raises(SettingError, match=problem):
        open_host(settings(MODEL, lora=lora))


def test_a_host_whose_adapters_are_refused_leaves_no_thread(tmp_path: Path) -> None:
    before = {*threading.enumerate()}
    with pytest.raises(SettingError, match="two have it"):
        open_host(settings(MODEL, lora=(FILES["a"], FILES["a"]), disk=64, cache_dir=str(tmp_path)))
    assert not {*threading.enumerate()} - before


def test_an_adapter_of_another_model_is_refused_and_leaves_nothing() -> None:
    with pytest.raises(ModelError, match="is an adapter for llama models"):
        open_host(settings("qwen35", lora=(FILES["a"],)))


@pytest.mark.parametrize("changes", [{"draft": "off"}, {"draft": "auto", "deterministic": True}, {"draft": "mtp"}])
def test_one_of_a_next_token_layer_that_is_not_loaded_is_refused_with_the_reason(changes: dict[str, object]) -> None:
    asked = settings(MTP, lora=(f"a={lora_path(model_path(MTP), 1)}",), **changes)
    if changes == {"draft": "mtp"}:
        with open_host(asked) as host:
            assert host.adapters.named("tiny:a")
    else:
        with pytest.raises(ModelError, match=r"adapts blk\.4\..*, of the next-token .*--draft auto or mtp"):
            open_host(asked)


def test_names_and_scales_are_read_from_the_flag() -> None:
    assert settings(lora=("a.gguf", "x=b.gguf:2", "/p=q/c.gguf:-0.5")).lora
    for wrong in ("x=b.gguf:2000", ""):
        with pytest.raises(SettingError, match="--lora"):
            settings(lora=(wrong,))
    with pytest.raises(SettingError, match="--control-vector-layers"):
        settings(control_vector_layers="9")
