"""Threads spin for long while the machine is ours, and briefly while others use it."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from leftoff.engine.binding import spins
from leftoff.engine.binding.library import load_library
from leftoff.engine.binding.spins import CpuTimes, Spins, cpu_times

LOOPS = """
import os, threading, time
from leftoff.engine.binding import spins
from leftoff.engine.binding.library import load_library
spins._PERIOD_S = 0.0
times = [(0.0, 0.0, 0.0, 0.0), (0.0, 2.0, 0.0, 1.0), (0.0, 4.0, 0.0, 3.0)]
watch = spins.Spins(load_library().dll, lambda: spins.CpuTimes(*times.pop(0)))
count = lambda: len(os.listdir("/proc/self/task"))
before = count()
watch.look(); watch.look()
crowded = watch.are_short
time.sleep(0.2)
during = count()
watch.look()
time.sleep(0.2)
print(crowded, during - before, watch.are_short, count() - before)
"""


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux tells how much others compute")
def test_more_threads_than_cpus_make_spins_short_until_the_others_are_gone() -> None:
    if not hasattr(load_library().dll, "GOMP_parallel"):
        pytest.skip("the library's threads are not those of libgomp")
    usual = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    if sys.platform != "linux" or os.uname().machine in ("aarch64", "arm64"):
        pytest.skip("spins are always short on this machine")
    told = subprocess.run([sys.executable, "-c", LOOPS], env=usual, capture_output=True, text=True, check=True)
    num_threads = (os.cpu_count() or 1) + 1  # the one that holds the team is one of them
    assert told.stdout.split() == ["True", str(num_threads), "False", "0"]


class Watched:
    """A watch that is told how many seconds of two CPUs passed, were idle, and were ours."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(spins, "_LOOKS", {})
        monkeypatch.setattr(spins, "_PERIOD_S", 0.0)
        self.now = CpuTimes(0.0, 0.0, 0.0, 0.0)
        self.spins = Spins(load_library().dll, lambda: self.now)
        self.spins.look()

    def are_short_after(self, *, busy: float, idle: float, own: float) -> bool:
        clock, busy_before, idle_before, own_before = self.now
        self.now = CpuTimes(clock, busy_before + busy, idle_before + idle, own_before + own)
        self.spins.look()
        return self.spins.are_short


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    if not hasattr(load_library().dll, "GOMP_parallel"):
        pytest.skip("the library's threads are not those of libgomp")
    watch = Watched(monkeypatch)
    yield watch
    watch.spins.close()


def test_a_machine_of_our_own_is_not_crowded(watched: Watched) -> None:
    assert not watched.are_short_after(busy=1.0, idle=0.0, own=0.95)
    assert not watched.are_short_after(busy=0.8, idle=0.2, own=0.2), "there is room for all"


def test_it_is_crowded_while_others_compute(watched: Watched) -> None:
    assert watched.are_short_after(busy=1.0, idle=0.0, own=0.5)
    assert watched.are_short_after(busy=1.0, idle=0.0, own=0.9), (
        "a tenth is too little to begin with, and too much to end"
    )
    assert not watched.are_short_after(busy=1.0, idle=0.0, own=0.95)
    assert watched.are_short_after(busy=1.0, idle=0.0, own=0.5)
    assert not watched.are_short_after(busy=0.5, idle=0.5, own=0.2)


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="only Linux tells how much others compute")
def test_linux_counts_the_time_of_cpus() -> None:
    times = cpu_times()
    assert times is not None
    assert 0 < times.own < times.busy
