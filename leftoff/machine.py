"""This machine: its cores, its RAM and the free space on its disks. Free RAM and GPUs are in `engine/devices.py`."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_ROOT = Path("/")


def physical_ram() -> int:
    """Bytes of RAM of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def num_cores() -> int:
    """The cores that this process may use."""
    return min([len(_allowed_cpus()), *cpu_quotas()])


def default_threads() -> int:
    """One thread per physical core this process may use: a second one per core slows decoding down."""
    cores = set()
    for cpu in _allowed_cpus():
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        cores.add(siblings.read_text() if siblings.exists() else str(cpu))
    return max(1, min([len(cores), *cpu_quotas()]))


def _allowed_cpus() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [*range(os.cpu_count() or 1)]


def cpu_quotas(root: Path = _ROOT) -> Iterator[int]:
    """Cores' worth of time that a container may take, as by `docker run --cpus`, rounded up; of each limit there is.

    A thread beyond them is stopped for most of every tenth of a second, and those that wait for it with it.
    """
    for folder, files in (("", ("cpu.max",)), ("cpu", ("cpu.cfs_quota_us", "cpu.cfs_period_us"))):
        for group in control_groups(root, root / "sys/fs/cgroup" / folder, "cpu"):
            with suppress(OSError, ValueError):  # "max" is no number, and no limit
                quota, period = map(int, " ".join((group / file).read_text() for file in files).split())
                if quota > 0:
                    yield -(-quota // period)


def control_groups(root: Path, folder: Path, controller: str) -> Iterator[Path]:
    """The control group of this process and those that hold it, from the innermost out."""
    with suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or controller in controllers.split(","):
                group = folder / path.lstrip("/")
                yield from (group, *(parent for parent in group.parents if parent.is_relative_to(folder)))
                return
    yield folder


def mapped_file_bytes(root: Path = _ROOT) -> int | None:
    """Bytes of files that this process has mapped and in RAM, such as a model on the CPU; None where nobody tells.

    The system counts them as available: it could read them again, and the process would wait for it.
    """
    with suppress(OSError, ValueError):
        for line in (root / "proc/self/status").read_text().splitlines():
            if line.startswith("RssFile:"):
                return int(line.removeprefix("RssFile:").removesuffix("kB")) << 10
    return None


class DiskSpace(NamedTuple):
    """Bytes of a file system that are free for this user, and all of it."""

    free_bytes: int
    total_bytes: int


def disk_space(folder: Path) -> DiskSpace:
    """The file system where a folder is, or would be made; without any space if it cannot be asked."""
    for place in (folder, *folder.parents):
        with suppress(OSError):
            disk = os.statvfs(place)
            return DiskSpace(disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize)
    return DiskSpace(0, 0)


def free_disk_bytes(folder: Path) -> int:
    """The free bytes of that file system."""
    return disk_space(folder).free_bytes


_M_ARENA_MAX = -8  # of glibc's `mallopt`


def use_one_heap() -> None:
    """Has all threads of this process allocate from one heap (glibc). To be called before they start.

    Else each of the first ones gets a heap of its own, which keeps up to 64 MiB of what it freed: `trim_heap` gives
    back the end of the first heap alone. A few threads that decoded or encoded one large picture would hold that much.
    """
    with suppress(AttributeError):
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def trim_heap() -> None:
    """Gives freed memory back to the system, where the C library would keep it (glibc)."""
    with suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
