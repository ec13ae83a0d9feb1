"""Where weights go: what reaches llama.cpp, and what is refused. The devices of a machine with GPUs are made up."""

import ctypes as C
import logging
from pathlib import Path

import numpy as np
import pytest

from leftoff.engine.binding import abi
from leftoff.engine.binding.library import load_library
from leftoff.engine.devices import Device
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.errors import InputError
from leftoff.engine.model import Model
from leftoff.engine.model_settings import ModelSettings
from leftoff.types import Logits
from tests.engine.conftest import SETTINGS
from tests.engine.scenario import prompt, read
from tests.factory import model_path

GPUS = tuple(Device(f"CUDA{index}", "a GPU", abi.DEVICE_GPU, 1000 + index) for index in range(2))


def logits(path: Path, settings: ModelSettings) -> Logits:
    with LlamaEngine.open(path, SETTINGS, model_settings=settings) as engine:
        return read(engine, 0, prompt(engine, 100))


@pytest.mark.parametrize("architecture", ["qwen35", "gpt-oss"])
@pytest.mark.parametrize(
    "settings",
    [
        ModelSettings(mmap=False),
        ModelSettings(mlock=True),
        ModelSettings(mmap=False, mlock=True),
        ModelSettings(gpu_layers=1),
        ModelSettings(n_cpu_moe=1),
        ModelSettings(cpu_moe=True),
        ModelSettings(override_tensor=("attn=CPU", r"blk\.1=CPU")),
        ModelSettings(devices=("none",), split_mode="none"),
    ],
    ids=repr,
)
def test_on_a_cpu_no_placement_changes_a_bit(architecture: str, settings: ModelSettings) -> None:
    path = model_path(architecture)
    assert np.array_equal(logits(path, settings), logits(path, ModelSettings()))


@pytest.mark.parametrize(
    ("settings", "layers"),
    [
        (ModelSettings(n_cpu_moe=2), {0, 1}),
        (ModelSettings(cpu_moe=True), {0, 1, 2, 3}),
        (ModelSettings(override_tensor=(r"blk\.3\.ffn_up_exps=CPU",)), {3}),
        (ModelSettings(), set()),
    ],
)
def test_experts_are_placed_layer_by_layer(
    settings: ModelSettings, layers: set[int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, logger="leftoff.llama")
    Model(model_path("gpt-oss"), settings).close()
    moved = [line.split()[1] for line in caplog.messages if "buffer type overridden to CPU" in line]
    assert {int(name.split(".")[1]) for name in moved} == layers
    assert all("_exps" in name for name in moved)


def test_every_field_reaches_llama_cpp() -> None:
    params = ModelSettings(gpu_layers=7, split_mode="row", mmap=False, devices=("none",)).params(load_library())
    assert (params.n_gpu_layers, params.split_mode, params.load_mode) == (7, 2, 0)
    assert C.c_void_p.from_address(params.devices).value is None
    locked = ModelSettings(mlock=True).params(load_library())
    assert (locked.load_mode, locked.split_mode, locked.devices) == (3, 1, None)
    assert ModelSettings(mmap=False, mlock=True).params(load_library()).load_mode == 2


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (ModelSettings(), ["CUDA0", "CUDA1"]),
        (ModelSettings(tensor_split=(3, 1)), ["CUDA0", "CUDA1"]),
        (ModelSettings(tensor_split=(1,)), ["CUDA0", "CUDA1"]),
        (ModelSettings(split_mode="none", main_gpu=1), ["CUDA1"]),
        (ModelSettings(split_mode="row", main_gpu=1), ["CUDA0", "CUDA1"]),
    ],
)
def test_the_gpus_in_use(settings: ModelSettings, expected: list[str]) -> None:
    assert [device.name for device in settings.devices_among(GPUS)] == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (ModelSettings(tensor_split=(3, 1, 0.5)), r"--tensor-split 3,1,0.5: 3 shares for 2 GPUs \(CUDA0, CUDA1\)"),
        (ModelSettings(main_gpu=2), r"--main-gpu 2: there are 2 GPUs \(CUDA0, CUDA1\), counted from 0"),
    ],
)
def test_a_gpu_that_is_not_there_is_refused(settings: ModelSettings, message: str) -> None:
    with pytest.raises(InputError, match=message):
        settings.devices_among(GPUS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (ModelSettings(devices=("CUDA9",)), "--device CUDA9: .*none means the CPU alone"),
        (ModelSettings(devices=("CPU",)), "--device CPU: "),
        (ModelSettings(devices=("none",), tensor_split=(1, 1)), r"2 shares for 0 GPUs \(none\)"),
        (ModelSettings(override_tensor=("exps=GPU7",)), r"--override-tensor exps=GPU7: no buffer type GPU7; .*CPU"),
    ],
)
def test_what_this_library_does_not_have_is_refused_with_what_it_has(settings: ModelSettings, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Model(model_path("llama"), settings)


def test_named_devices_are_found_among_those_there_are() -> None:
    assert ModelSettings(devices=("CUDA1",))._named_devices(GPUS) == GPUS[1:]
    with pytest.raises(InputError, match="--device CUDA2: there is CUDA0, CUDA1; none means the CPU alone"):
        ModelSettings(devices=("CUDA2",))._named_devices(GPUS)
