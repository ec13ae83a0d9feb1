"""The devices of the library, and the memory that is left for this process."""

from pathlib import Path

import pytest

from leftoff.engine.binding.library import load_library
from leftoff.engine.devices import all_devices, available_ram, buffer_types
from tests.engine.machines import machine

GIB = 1 << 30


def meminfo(gibibytes: int) -> dict[str, str]:
    return {"proc/meminfo": f"MemTotal: {64 << 20} kB\nMemFree: 100 kB\nMemAvailable: {gibibytes << 20} kB\n"}


def group(folder: str, limit: str, used: int, files: int) -> dict[str, str]:
    return {
        f"sys/fs/cgroup/{folder}memory.max": f"{limit}\n",
        f"sys/fs/cgroup/{folder}memory.current": f"{used * GIB}\n",
        f"sys/fs/cgroup/{folder}memory.stat": f"anon 5\ninactive_file {files * GIB}\n",
    }


def test_every_library_has_a_cpu_whose_buffer_type_can_be_named() -> None:
    library = load_library()
    assert any(device.name == "CPU" and not device.is_gpu for device in all_devices(library))
    assert "CPU" in buffer_types(library)


def test_this_machine_has_memory_left() -> None:
    assert GIB // 4 < available_ram() < 1 << 50


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (meminfo(20), 20),
        (meminfo(20) | group("", "max", 1, 0), 20),
        (meminfo(20) | group("", str(8 * GIB), 5, 2), 5),
        (meminfo(2) | group("", str(8 * GIB), 5, 2), 2),
        (meminfo(20) | {"proc/self/cgroup": "0::/app/web\n"} | group("app/web/", "max", 1, 0), 20),
        (meminfo(20) | {"proc/self/cgroup": "0::/app/web\n"} | group("app/", str(6 * GIB), 3, 1), 4),
        (
            meminfo(20)
            | {
                "proc/self/cgroup": "5:cpu:/x\n4:memory:/docker\n",
                "sys/fs/cgroup/memory/docker/memory.limit_in_bytes": str(7 * GIB),
                "sys/fs/cgroup/memory/docker/memory.usage_in_bytes": str(2 * GIB),
                "sys/fs/cgroup/memory/docker/memory.stat": f"cache 1\ntotal_inactive_file {GIB}\n",
            },
            6,
        ),
    ],
    ids=["machine", "no limit", "container", "machine is fuller", "group", "group above", "version 1"],
)
def test_ram_is_what_the_machine_and_the_container_leave(files: dict[str, str], expected: int, tmp_path: Path) -> None:
    assert available_ram(machine(tmp_path, files)) == expected * GIB


def test_a_machine_that_tells_nothing_is_asked_for_its_half(tmp_path: Path) -> None:
    assert available_ram(tmp_path) > 0
