"""Finds the GPUs and the processor of this machine in /proc, /sys and /dev, and says which engine makes use of them.

It loads no library. A processor's own graphics are left out: a model is hardly ever faster on them.
"""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from leftoff.engine.binding.image import Platform, this_platform
from leftoff.engine.binding.library import Library
from leftoff.engine.devices import all_devices
from leftoff.engine.install.packages import NoPackageError, package_for

_AMD, _INTEL = "0x1002", "0x8086"
_DISPLAY_CLASS = "0x03"
_INTEGRATED_INTEL = "0000:00:02.0"
_SMALLEST_VRAM = 2 << 30  # of an AMD card; a processor's own graphics reserve less of the main memory
# kfd's numbers of the GPUs that the ROCm engine has code for.
_ROCM_TARGETS = {"90010": "gfx90a", "90402": "gfx942", "110000": "gfx1100"}
_SECONDS = 10

# The CUDA 13 engine: the driver that runs its machine code, the GPUs it has such code for, and the driver that compiles
# its PTX for all others.
_CUDA_13_DRIVER, _CUDA_13_PTX_DRIVER = 580, 590
_CUDA_13_CODE = {"8.6", "8.9", "12.0", "12.1"}
_CUDA_OLDEST = 7.5

# The system's name of an instruction set, and llama.cpp's. A build without it may be several times slower.
_INSTRUCTIONS = {"asimddp": "DOTPROD", "avx2": "AVX2"}


@dataclass(frozen=True)
class Gpu:
    """A GPU, and the kind of engine that computes on it."""

    name: str
    engine: str


@dataclass(frozen=True)
class _Driver:
    """NVIDIA's driver, 0 if unknown, and the compute capabilities of its GPUs, empty if unknown."""

    version: int
    capabilities: frozenset[str]


def find_gpus(root: Path = Path("/"), platform: Platform | None = None) -> list[Gpu]:
    """The GPUs of this machine. `root` is where /proc, /sys and /dev are."""
    platform = platform or this_platform()
    if platform.system == "macOS":
        return [Gpu("Apple GPU", "metal")] if platform.machine == "arm64" else []
    return [*_nvidia(root), *_others(root)]


def best_engine(gpus: list[Gpu], root: Path = Path("/")) -> str:
    """The engine to install for these GPUs."""
    engine = gpus[0].engine if gpus else "cpu"
    return cuda_engine(root) if engine == "cuda" else engine


def unused_gpu(library: Library, root: Path = Path("/")) -> str:
    """One line for a machine with a GPU that is none of the library's devices; empty if there is nothing to say."""
    gpus = find_gpus(root)
    if not gpus or any(device.is_gpu for device in all_devices(library)):
        return ""
    try:
        package_for(best_engine(gpus, root), this_platform())
    except NoPackageError:
        return ""
    return f"{gpus[0].name}: this llama.cpp build computes on the CPU. To use the GPU: leftoff engine install"


def unused_instructions(system_info: str, root: Path = Path("/")) -> str:
    """One line if there is an engine that uses more of the processor than the library with this `system_info` does."""
    try:
        package_for("cpu", this_platform())
    except NoPackageError:
        return ""
    known = re.search(r"^(?:Features|flags)\s*:(.*)$", _text(root / "proc/cpuinfo"), re.MULTILINE)
    has = set(known[1].split()) if known else set()
    for system, name in _INSTRUCTIONS.items():
        if system in has and f"{name} = 1" not in system_info:
            return f"this llama.cpp build leaves {name} instructions unused. Faster: leftoff engine install cpu"
    return ""


def cuda_engine(root: Path = Path("/")) -> str:
    """`cuda13` or `cuda12`, by NVIDIA's driver and what the GPUs can run; `vulkan` for GPUs older than both."""
    driver = _ask_driver() or _read_driver(root)
    if any(float(capability) < _CUDA_OLDEST for capability in driver.capabilities):
        return "vulkan"
    has_code = bool(driver.capabilities) and driver.capabilities <= _CUDA_13_CODE
    return "cuda13" if driver.version >= (_CUDA_13_DRIVER if has_code else _CUDA_13_PTX_DRIVER) else "cuda12"


def _nvidia(root: Path) -> Iterator[Gpu]:
    if (root / "usr/lib/wsl/lib/libcuda.so.1").exists():  # Windows has the driver, and Linux sees no device
        yield Gpu("NVIDIA GPU", "cuda")
    elif any((root / "dev").glob("nvidia[0-9]*")):  # in a container, /proc may show GPUs that it was not given
        files = sorted((root / "proc/driver/nvidia/gpus").glob("*/information"))
        names = [match[1] for file in files if (match := re.search(r"Model:\s*(.+)", _text(file)))]
        yield from (Gpu(name, "cuda") for name in names or ["NVIDIA GPU"])


def _others(root: Path) -> Iterator[Gpu]:
    for folder in sorted((root / "sys/class/drm").glob("card[0-9]*/device")):
        vendor, is_display = _text(folder / "vendor"), _text(folder / "class").startswith(_DISPLAY_CLASS)
        if vendor == _AMD and int(_text(folder / "mem_info_vram_total") or 0) >= _SMALLEST_VRAM:
            yield Gpu(_text(folder / "product_name") or "AMD GPU", "rocm" if _has_rocm(root) else "vulkan")
        elif vendor == _INTEL and is_display and folder.resolve().name != _INTEGRATED_INTEL:
            yield Gpu("Intel GPU", "vulkan")


def _has_rocm(root: Path) -> bool:
    """Whether ROCm 6 is installed, and the ROCm engine has code for the GPUs."""
    if not any(root.glob("opt/rocm*/lib/libamdhip64.so.6")):
        return False
    nodes = root.glob("sys/class/kfd/kfd/topology/nodes/*/properties")
    found = re.findall(r"^gfx_target_version (\d+)$", "\n".join(map(_text, nodes)), re.MULTILINE)
    targets = {number for number in found if number != "0"}
    return bool(targets) and targets <= _ROCM_TARGETS.keys()


def _ask_driver() -> _Driver | None:
    command = ["nvidia-smi", "--query-gpu=driver_version,compute_cap", "--format=csv,noheader"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    rows = re.findall(r"^(\d+)\.[\d.]+, (\d+\.\d+)$", told, re.MULTILINE)
    return _Driver(int(rows[0][0]), frozenset(capability for _, capability in rows)) if rows else None


def _read_driver(root: Path) -> _Driver:
    match = re.search(r"Module\s+(?:for \S+\s+)?(\d+)\.", _text(root / "proc/driver/nvidia/version"))
    return _Driver(int(match[1]) if match else 0, frozenset())


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""
