"""GPUs are found in the files by which Linux shows them. Each machine here is a folder with such files."""

import sys
from pathlib import Path

import pytest

from leftoff.engine.binding.image import Platform
from leftoff.engine.binding.library import load_library
from leftoff.engine.hardware import Gpu, best_engine, cuda_engine, find_gpus, unused_gpu
from tests.engine.machines import machine

LINUX = Platform("Linux", "x86-64")
NVIDIA = {
    "dev/nvidia0": "",
    "proc/driver/nvidia/gpus/0000:01:00.0/information": "Model: \t\t NVIDIA GeForce RTX 4090\nIRQ: 1\n",
}
AMD = {"vendor": "0x1002", "class": "0x030000", "mem_info_vram_total": str(24 << 30), "product_name": "Radeon RX 7900"}


def card(files: dict[str, str]) -> dict[str, str]:
    return {f"sys/class/drm/card0/device/{name}": text for name, text in files.items()}


@pytest.fixture
def no_tool(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """NVIDIA's tool is not installed."""
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))


def tool(folder: Path, monkeypatch: pytest.MonkeyPatch, *rows: str) -> None:
    """NVIDIA's tool as it answers on a machine with such GPUs."""
    path = folder / "bin" / "nvidia-smi"
    path.parent.mkdir(parents=True)
    path.write_text("#!/bin/sh\ncat <<END\n" + "\n".join(rows) + "\nEND\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")


def test_a_machine_without_a_gpu_has_none(tmp_path: Path) -> None:
    assert find_gpus(machine(tmp_path, {"proc/version": "Linux"}), LINUX) == []
    assert best_engine([]) == "cpu"


def test_nvidia_is_found_by_name(tmp_path: Path) -> None:
    assert find_gpus(machine(tmp_path, NVIDIA), LINUX) == [Gpu("NVIDIA GeForce RTX 4090", "cuda")]


def test_a_container_that_was_given_no_gpu_has_none(tmp_path: Path) -> None:
    seen = {name: text for name, text in NVIDIA.items() if name.startswith("proc")}
    assert find_gpus(machine(tmp_path, seen), LINUX) == []


def test_windows_lends_its_gpu(tmp_path: Path) -> None:
    assert find_gpus(machine(tmp_path, {"usr/lib/wsl/lib/libcuda.so.1": ""}), LINUX) == [Gpu("NVIDIA GPU", "cuda")]


def test_amd_has_vulkan_unless_rocm_is_installed_and_the_engine_has_code_for_the_gpu(tmp_path: Path) -> None:
    root = machine(tmp_path, card(AMD))
    assert find_gpus(root, LINUX) == [Gpu("Radeon RX 7900", "vulkan")]
    machine(root, {"opt/rocm-6.4.1/lib/libamdhip64.so.6": ""})
    nodes = "sys/class/kfd/kfd/topology/nodes"
    machine(
        root,
        {f"{nodes}/0/properties": "gfx_target_version 0\n", f"{nodes}/1/properties": "gfx_target_version 110000\n"},
    )
    assert find_gpus(root, LINUX) == [Gpu("Radeon RX 7900", "rocm")]
    machine(root, {f"{nodes}/1/properties": "gfx_target_version 100300\n"})
    assert find_gpus(root, LINUX) == [Gpu("Radeon RX 7900", "vulkan")]


def test_graphics_of_the_processor_do_not_count(tmp_path: Path) -> None:
    small = AMD | {"mem_info_vram_total": str(512 << 20)}
    assert find_gpus(machine(tmp_path / "amd", card(small)), LINUX) == []
    intel = {"vendor": "0x8086", "class": "0x030000"}
    for address, expected in (("0000:00:02.0", []), ("0000:03:00.0", [Gpu("Intel GPU", "vulkan")])):
        root = machine(tmp_path / address, {f"sys/devices/{address}/{name}": text for name, text in intel.items()})
        (root / "sys/class/drm/card0").mkdir(parents=True)
        (root / "sys/class/drm/card0/device").symlink_to(root / "sys/devices" / address)
        assert find_gpus(root, LINUX) == expected


def test_a_mac_with_apple_silicon_has_one(tmp_path: Path) -> None:
    assert find_gpus(tmp_path, Platform("macOS", "arm64")) == [Gpu("Apple GPU", "metal")]
    assert find_gpus(tmp_path, Platform("macOS", "x86-64")) == []


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (("580.82.07, 8.9",), "cuda13"),  # machine code
        (("580.82.07, 8.9", "580.82.07, 9.0"), "cuda12"),  # PTX that this driver does not know
        (("590.44.01, 9.0",), "cuda13"),
        (("570.86.10, 8.9",), "cuda12"),
        (("590.44.01, 6.1",), "vulkan"),  # older than all code
    ],
)
def test_the_driver_and_the_gpus_decide_between_the_engines_for_cuda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: tuple[str, ...], expected: str
) -> None:
    tool(tmp_path, monkeypatch, *rows)
    assert cuda_engine(tmp_path) == best_engine([Gpu("a", "cuda")], tmp_path) == expected


@pytest.mark.usefixtures("no_tool")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  590.44.01  Release Build", "cuda13"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  Sun Jul 27", "cuda12"),
        ("", "cuda12"),
    ],
)
def test_without_the_tool_the_driver_tells_its_version(tmp_path: Path, text: str, expected: str) -> None:
    assert cuda_engine(machine(tmp_path, {"proc/driver/nvidia/version": text})) == expected


@pytest.mark.usefixtures("no_tool")
@pytest.mark.skipif(sys.platform != "linux", reason="the GPU of a Mac is in use")
def test_one_line_tells_of_a_gpu_that_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = machine(tmp_path, NVIDIA)
    monkeypatch.setattr("leftoff.engine.hardware.this_platform", lambda: LINUX)
    assert unused_gpu(load_library(), root) == (
        "NVIDIA GeForce RTX 4090: this llama.cpp build computes on the CPU. To use the GPU: leftoff engine install"
    )
    assert unused_gpu(load_library(), tmp_path / "none") == ""
    monkeypatch.setattr("leftoff.engine.hardware.this_platform", lambda: Platform("Linux", "arm64"))
    assert unused_gpu(load_library(), root) == "", "no command would change it"
