"""kill -9 some seconds after the last of four conversations, a restart, and the next turn of each."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.gpu import goals
from lab.gpu.agents import NUM_AGENTS, NUM_NEW, NUM_REPLY, Agents
from lab.gpu.record import Series, listed
from lab.gpu.rig import Rig

_REST_S = 8
_SLOTS = 4
_ALLOWED_MS = 200
_SLACK_TOKENS = 64  # before the end of the last prompt
_NUM_READERS = 4
_MOST_BYTES, _PIECE = 2 << 30, 4 << 20
_DROP_CACHES = Path("/proc/sys/vm/drop_caches")


def measure(rig: Rig) -> None:
    """leftoff alone: llama-server keeps nothing on disk by itself."""
    rig.record.say(f"kill: {NUM_AGENTS} conversations, kill -9 after {_REST_S} s, restart, the next turn of each")
    with TemporaryDirectory(dir=rig.folder, prefix="leftoff-gpu-") as name:
        folder = Path(name)
        with rig.leftoff(_SLOTS, cache=folder) as server:
            agents = Agents(server, rig.long)
            rig.record.say(f"  first turns {agents.begin().show(in_order=True)} ms; now {_REST_S} s of rest")
            time.sleep(_REST_S)
        rate = _disk_rate(folder)
        with rig.leftoff(_SLOTS, cache=folder) as server:
            agents.server, fetched, resumed = server, list[int](), list[Series]()
            for number in range(NUM_AGENTS):
                before = _read_bytes(server.process.pid)
                resumed.append(agents.turn_of(number))
                fetched.append(_read_bytes(server.process.pid) - before)
    _add(rig, resumed, fetched, rate)


def _add(rig: Rig, resumed: list[Series], fetched: list[int], rate: float) -> None:
    values = Series(tuple(one.values[0] for one in resumed), tuple(one.computed[0] for one in resumed))
    limits = [1000 * num_bytes / rate + _ALLOWED_MS for num_bytes in fetched]
    megabytes = listed([num_bytes / 1e6 for num_bytes in fetched])
    note = f"fetched {megabytes} MB; {_NUM_READERS} threads read this disk at {rate / 1e9:.2f} GB/s"
    in_time = goals.each_below(limits, f"≤ bytes ÷ disk rate + {_ALLOWED_MS} ms: {listed(limits)} ms")
    rig.record.add("kill", "next turn after kill -9", "ms", values, goal=in_time, note=note, in_order=True)
    most = NUM_NEW + NUM_REPLY - 1 + _SLACK_TOKENS
    computed = Series(tuple(map(float, values.computed)))
    rig.record.add(
        "kill", "tokens computed by it", "tokens", computed, goal=goals.at_most(most, "tokens"), in_order=True
    )


def _read_bytes(pid: int) -> int:
    """What a process has read from files so far."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(fields["rchar"])


def _disk_rate(folder: Path) -> float:
    """Bytes per second of the blobs in a folder, read by several threads, from the disk and not from RAM."""
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: -path.stat().st_size)
    _drop_cached(files)
    chosen = list(_up_to(files, _MOST_BYTES))
    began = time.perf_counter()
    with ThreadPoolExecutor(_NUM_READERS) as readers:
        num_bytes = sum(readers.map(_read, chosen))
    rate = num_bytes / (time.perf_counter() - began)
    _drop_cached(files)
    return rate


def _up_to(files: list[Path], most_bytes: int) -> Iterator[Path]:
    for path in files:
        most_bytes -= path.stat().st_size
        yield path
        if most_bytes <= 0:
            return


def _read(path: Path) -> int:
    buffer, total = bytearray(_PIECE), 0
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            total += count
    return total


def _drop_cached(files: list[Path]) -> None:
    """The pages of these files in the system's cache; of all files where this process may."""
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with suppress(OSError):
        _DROP_CACHES.write_text("3")
