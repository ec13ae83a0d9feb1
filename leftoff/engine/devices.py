"""The devices that a library computes on, and the memory that is free on them and in the machine.

Knows nothing of models: `model_settings.py` says which devices one uses, and `fit.py` what fits them.
"""

import ctypes as C
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from leftoff.engine.binding import abi
from leftoff.engine.binding.library import Library
from leftoff.machine import control_groups, physical_ram

_ROOT = Path("/")


@dataclass(frozen=True)
class Device:
    """A device by the name that `--device` takes, such as CUDA0."""

    name: str
    description: str
    kind: int  # ggml_backend_dev_type
    handle: int = field(repr=False)

    def __str__(self) -> str:
        return f"{self.name} ({self.description})"

    @property
    def is_gpu(self) -> bool:
        return self.kind in (abi.DEVICE_GPU, abi.DEVICE_INTEGRATED_GPU)


@dataclass(frozen=True)
class DeviceMemory:
    """A device and its memory now, 0 where its driver reports none: for people and for other processes."""

    name: str
    description: str
    is_gpu: bool
    free_bytes: int
    total_bytes: int


def all_devices(library: Library) -> tuple[Device, ...]:
    """Every device of the library, the CPU among them."""
    dll = library.dll
    handles = (dll.ggml_backend_dev_get(index) for index in range(dll.ggml_backend_dev_count()))
    return tuple(
        Device(
            dll.ggml_backend_dev_name(handle).decode(),
            dll.ggml_backend_dev_description(handle).decode(),
            dll.ggml_backend_dev_type(handle),
            handle,
        )
        for handle in handles
    )


def default_gpus(library: Library) -> tuple[Device, ...]:
    """The GPUs that llama.cpp uses unless told otherwise: integrated ones only where there is no other."""
    devices = all_devices(library)
    gpus = tuple(device for device in devices if device.kind == abi.DEVICE_GPU)
    return gpus or tuple(device for device in devices if device.kind == abi.DEVICE_INTEGRATED_GPU)


def free_bytes(library: Library, device: Device) -> int:
    """Free memory of a GPU as its driver reports it; 0 where it reports none."""
    return _memory(library, device).free_bytes


def device_memory(library: Library) -> tuple[DeviceMemory, ...]:
    """Every device of the library with its memory."""
    return tuple(_memory(library, device) for device in all_devices(library))


def _memory(library: Library, device: Device) -> DeviceMemory:
    free, total = C.c_size_t(), C.c_size_t()
    library.dll.ggml_backend_dev_memory(device.handle, C.byref(free), C.byref(total))
    unused = free.value if device.is_gpu else min(free.value, available_ram())  # of RAM, ggml calls all of it free
    return DeviceMemory(device.name, device.description, device.is_gpu, unused, total.value)


def buffer_types(library: Library) -> dict[str, int]:
    """The buffer types that `--override-tensor` can name, with their handles: one for each device."""
    dll = library.dll
    handles = filter(None, (dll.ggml_backend_dev_buffer_type(device.handle) for device in all_devices(library)))
    return {dll.ggml_backend_buft_name(handle).decode(): handle for handle in handles}


def device_names(library: Library, devices: Sequence[Device]) -> dict[str, str]:
    """The names under which llama.cpp logs these devices, and their own: a buffer may be called differently."""
    dll = library.dll
    types = {device: dll.ggml_backend_dev_buffer_type(device.handle) for device in devices}
    buffers = {dll.ggml_backend_buft_name(handle).decode(): device.name for device, handle in types.items() if handle}
    return {device.name: device.name for device in devices} | buffers


def available_ram(root: Path = _ROOT) -> int:
    """Bytes of RAM that can still be used without swapping, within the limit of the container if there is one."""
    limits = [*_of_machine(root), *_of_container(root)]
    return min(limits) if limits else physical_ram() // 2


def _of_machine(root: Path) -> Iterator[int]:
    with suppress(OSError, ValueError):
        for line in (root / "proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) << 10


def _of_container(root: Path) -> Iterator[int]:
    """Free bytes of the cgroup of this process and of those above it: the limit, less its use beyond cached files."""
    for folder, limit, used, files in (
        ("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"),
        ("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
    ):
        for group in control_groups(root, root / folder, "memory"):
            with suppress(OSError, ValueError):  # "max" is no number, and no limit
                stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
                total, taken = (int((group / name).read_text()) for name in (limit, used))
                yield max(0, total - taken + int(stat.get(files, 0)))
