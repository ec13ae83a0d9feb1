"""How long llama.cpp's threads spin while they wait for each other, before they sleep.

They belong to libgomp, which reads that number when it is loaded. On ARM, waking a thread is cheap and short spins are
best. On x86-64, mostly a virtual machine, it takes so long that threads should not sleep between two decode steps; but
where other programs want the same cores, threads that spin keep those away that are waited for. So there they spin for
long, and briefly while others are seen to use the cores:

    libgomp spins briefly whenever it has more threads than there are CPUs. An idle team of threads makes it so.
"""

import ctypes as C
import os
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

_LOOKS = {"aarch64": "10000", "arm64": "10000"}  # by machine; libgomp's own number, 300,000, elsewhere
_CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
_PERIOD_S = 0.5
_CROWDED, _OURS = 0.15, 0.08  # of the CPUs' time that others use: from when on, and until when, it is crowded
_IDLE = 0.1  # of the CPUs' time: then there is room for all
_STAT = Path("/proc/stat")


@contextmanager
def spins_chosen() -> Iterator[None]:
    """While libgomp is loaded. Child processes must not inherit our choice."""
    looks = _LOOKS.get(platform.machine())
    if looks is None or _is_users_choice():
        yield
        return
    os.environ["GOMP_SPINCOUNT"] = looks
    try:
        yield
    finally:
        del os.environ["GOMP_SPINCOUNT"]


def _is_users_choice() -> bool:
    return any(name in os.environ for name in _CHOICES)


class CpuTimes(NamedTuple):
    """Seconds since some moment: of the clock, and of the CPUs that this process may use."""

    clock: float
    busy: float
    idle: float
    own: float  # used by this process


class Spins:
    """Watches who uses the CPUs. Belongs to the engine's thread."""

    def __init__(self, dll: C.CDLL, times: Callable[[], CpuTimes | None] | None = None) -> None:
        """Does nothing where the library has no libgomp, or the user or the machine has asked for short spins."""
        is_fixed = platform.machine() in _LOOKS or _is_users_choice()
        self._dll = dll if hasattr(dll, "GOMP_parallel") and not is_fixed else None
        self._times = times or cpu_times
        self._last: CpuTimes | None = None
        self._next_look = 0.0
        self._team: _IdleTeam | None = None

    @property
    def are_short(self) -> bool:
        return self._team is not None

    def look(self) -> None:
        """Looks every half second who uses the CPUs. Called before every decode step."""
        if self._dll is None or time.monotonic() < self._next_look:
            return
        self._next_look = time.monotonic() + _PERIOD_S
        before, self._last = self._last, self._times()
        if before is None or self._last is None or self._last.clock - before.clock > 4 * _PERIOD_S:
            return  # the engine has rested since
        self._judge(*(now - then for now, then in zip(self._last, before, strict=True)))

    def close(self) -> None:
        if self._team is not None:
            self._team.end()
            self._team = None

    def _judge(self, _clock: float, busy: float, idle: float, own: float) -> None:
        total = max(busy + idle, 1e-9)
        others = (busy - own) / total
        if self._team is None and others > _CROWDED and idle / total < _IDLE:
            assert self._dll is not None
            self._team = _IdleTeam(self._dll)
        elif self._team is not None and (others < _OURS or idle / total >= _IDLE):
            self.close()


class _IdleTeam:
    """One more thread of libgomp's than there are CPUs. All of them sleep."""

    def __init__(self, dll: C.CDLL) -> None:
        self._dll = dll
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._hold, name="leftoff-spins", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._is_over.set()
        self._thread.join()

    def _hold(self) -> None:
        free = C.cast(C.CDLL(None).free, C.c_void_p)  # of nothing: a function that does nothing
        self._dll.GOMP_parallel(free, None, C.c_uint((os.cpu_count() or 1) + 1), C.c_uint(0))
        self._is_over.wait()  # the team ends with the thread that made it


def cpu_times() -> CpuTimes | None:
    """The times that Linux counts; None on other systems."""
    try:
        lines = _STAT.read_text().splitlines()
        allowed = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        counts = [[int(each) for each in line.split()[1:9]] for line in lines if line.split()[0] in allowed]
    except (OSError, AttributeError, ValueError, IndexError):
        return None
    ticks = os.sysconf("SC_CLK_TCK")
    idle = sum(user_to_steal[3] + user_to_steal[4] for user_to_steal in counts)
    busy = sum(map(sum, counts)) - idle
    return CpuTimes(time.monotonic(), busy / ticks, idle / ticks, time.process_time())
