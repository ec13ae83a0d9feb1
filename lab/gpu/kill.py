"""kill -9 some seconds after the last of four conversations, a restart, and the next turn of each."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.gpu import goals
from lab.gpu.agents import NUM_AGENTS, NUM_NEW, NUM_REPLY, Agents, joined
from lab.gpu.record import Series, listed
from lab.gpu.rig import Rig

_REST_S = 8
_SLOTS = 4
_ALLOWED_MS = 200
_SLACK_TOKENS = 64  # before the end of the last prompt
_NUM_READERS = 4
_MAX_BYTES, _PIECE = 2 << 30, 4 << 20
_DROP_CACHES = Path("/proc/sys/vm/drop_caches")


@dataclass(frozen=True)
class _Disk:
    """What was read of the blobs before the restart."""

    bytes_per_s: float
    is_from_disk: bool | None  # and not from the system's cache; None where the system does not tell
    num_bytes: int  # of all blobs

    def __str__(self) -> str:
        source = {True: "from the disk", False: "from the system's cache", None: "from the disk or the system's cache"}
        return f"{_NUM_READERS} threads read them {source[self.is_from_disk]} at {self.bytes_per_s / 1e9:.2f} GB/s"


def measure(rig: Rig) -> None:
    """leftoff alone: llama-server keeps nothing on disk by itself."""
    rig.record.say(f"kill: {NUM_AGENTS} conversations, kill -9 after {_REST_S} s, restart, the next turn of each")
    with TemporaryDirectory(dir=rig.folder, prefix="leftoff-gpu-") as name:
        folder = Path(name)
        with rig.leftoff(_SLOTS, cache=folder) as server:
            agents = Agents(server, rig.long)
            rig.record.say(f"  first turns {agents.begin().show(in_order=True)} ms; now {_REST_S} s of rest")
            time.sleep(_REST_S)
        disk = read_back(folder)
        rig.record.say(f"  {disk.num_bytes / 1e9:.2f} GB are on disk; {disk}")
        with rig.leftoff(_SLOTS, cache=folder) as server:
            agents.server, fetched, turns = server, list[int](), list[Series]()
            for number in range(NUM_AGENTS):
                before = _io(server.process.pid)
                turns.append(agents.turn_of(number))
                after = _io(server.process.pid)
                fetched.append(after.asked - before.asked if before and after else disk.num_bytes // NUM_AGENTS)
    _add(rig, joined(turns), fetched, disk)


def _add(rig: Rig, turns: Series, fetched: list[int], disk: _Disk) -> None:
    limits = [1000 * num_bytes / disk.bytes_per_s + _ALLOWED_MS for num_bytes in fetched]
    note = f"fetched {listed([num_bytes / 1e6 for num_bytes in fetched])} MB; {disk}"
    in_time = goals.each_below(limits, f"≤ bytes ÷ disk rate + {_ALLOWED_MS} ms: {listed(limits)} ms")
    rig.record.add("kill", "next turn after kill -9", "ms", turns, goal=in_time, note=note, in_order=True)
    at_end = goals.at_most(NUM_NEW + NUM_REPLY - 1 + _SLACK_TOKENS, "tokens")
    computed = Series(tuple(map(float, turns.computed)))
    rig.record.add("kill", "tokens computed after kill -9", "tokens", computed, goal=at_end, in_order=True)


@dataclass(frozen=True)
class _Io:
    """Bytes that a process has read so far: of files, and of the disk for it."""

    asked: int
    from_disk: int


def _io(pid: int) -> _Io | None:
    try:
        fields = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
        return _Io(int(fields["rchar"]), int(fields["read_bytes"]))
    except (OSError, LookupError):  # not every sandbox has it
        return None


def read_back(folder: Path) -> _Disk:
    """Reads the largest files of a folder by several threads; before and after, the system's cache lets go of them."""
    files = sorted((path for path in folder.rglob("*") if path.is_file()), key=lambda path: -path.stat().st_size)
    disk = _read_all(files)
    if disk.is_from_disk is False:
        with suppress(OSError):  # all files of the machine, the model's too: the next start takes longer
            _DROP_CACHES.write_text("3")
        disk = _read_all(files)
    _let_go(files)
    return disk


def _read_all(files: list[Path]) -> _Disk:
    _let_go(files)
    before, began = _io(os.getpid()), time.perf_counter()
    with ThreadPoolExecutor(_NUM_READERS) as readers:
        num_read = sum(readers.map(_read, _up_to(files, _MAX_BYTES)))
    seconds, after = time.perf_counter() - began, _io(os.getpid())
    is_from_disk = after.from_disk - before.from_disk > num_read // 2 if before and after else None
    return _Disk(num_read / seconds, is_from_disk, sum(path.stat().st_size for path in files))


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


def _let_go(files: list[Path]) -> None:
    for path in files:
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
