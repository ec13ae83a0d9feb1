"""Two models with room for one: the next turn of a long conversation after the other model has worked.

A swap may take as long as loading the weights alone and a little more. A process of its own loads them, before and
after the swaps: a machine that others use is not always equally fast.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import httpx

from lab.bench.errors import BenchError
from lab.bench.process import resident_bytes
from lab.gpu import goals
from lab.gpu.agents import NUM_NEW, NUM_REPLY, Agents, joined
from lab.gpu.record import NONE, Series
from lab.gpu.rig import XLLAMACPP, Rig, Server
from leftoff.engine.binding.library import load_library
from leftoff.engine.model import load_weights
from leftoff.engine.model_settings import ModelSettings

_SLOTS = 4
_NUM_LOADS = 4
_ALLOWED_MS = 300
_SMALL = 64  # tokens of what the other model is asked
_MAX_GROWTH = 1.05


@dataclass(frozen=True)
class Extent:
    """How often the models take turns."""

    num_rounds: int = 8
    num_peer_rounds: int = 3
    num_swaps: int = 30  # over which the memory is watched


_USUAL = Extent()


def measure(rig: Rig, extent: Extent = _USUAL) -> None:
    """Each server alone."""
    if rig.second is None:
        rig.record.say("swaps: left out; they take a second model, --second FILE")
        return
    rig.record.say(f"swaps: a conversation of {rig.long:,} tokens, and another model between its turns")
    loads = _load_times(rig.model)
    both = ("--models-max", "2", str(rig.second))
    with rig.leftoff(_SLOTS, "--models-max", "1", str(rig.second)) as server:
        ours = _turns(server, rig, extent.num_rounds)
        grown = _grown(server, rig, extent.num_swaps)
        num_vocabulary = server.prompts.num_vocabulary
    loads += _load_times(rig.model)
    with rig.leftoff(_SLOTS, *both) as server:
        awake = _turns(server, rig, extent.num_rounds)
    theirs = _peer_turns(rig, num_vocabulary, extent.num_peer_rounds)
    limit = goals.median_below(median(loads) + _ALLOWED_MS, f"≤ loading alone + {_ALLOWED_MS} ms")
    new = goals.told(max(ours.computed) <= NUM_NEW + NUM_REPLY, "only what is new is read")
    rig.record.add("swaps", "next turn after a swap", "ms", ours, theirs, goals.all_of(limit, new), in_order=True)
    rig.record.add("swaps", "the same with room for both", "ms", awake, in_order=True)
    bound = goals.at_most(_MAX_GROWTH, "times")
    title = f"memory after {extent.num_swaps} swaps, over that after the second"
    rig.record.add("swaps", title, "times", grown, goal=bound)


def _turns(server: Server, rig: Rig, num_rounds: int, names: Callable[[Path], str] = lambda path: path.stem) -> Series:
    """First-token times of the turns of one conversation, with the other model asked before each."""
    assert rig.second is not None
    first, second = (replace(server, model=names(path)) for path in (rig.model, rig.second))
    agents = Agents(first, rig.long, count=1)
    agents.begin()
    turns = []
    for number in range(num_rounds):
        second.ask(second.prompts.tokens(f"between {number}", _SMALL), NUM_REPLY)
        turns.append(agents.turn())
    return joined(turns)


def _peer_turns(rig: Rig, num_vocabulary: int, num_rounds: int) -> Series:
    if rig.llama_server == XLLAMACPP:  # it has no router
        return NONE
    assert rig.second is not None
    with TemporaryDirectory(dir=rig.folder) as name:
        for path in (rig.model, rig.second):
            Path(name, path.name).symlink_to(path)
        with rig.peer_router(_SLOTS, Path(name), 1) as server:
            listed = [model["id"] for model in httpx.get(f"{server.url}/v1/models").json()["data"]]
            return _turns(
                replace(server, num_vocabulary=num_vocabulary),
                rig,
                num_rounds,
                lambda path: next(each for each in listed if path.stem in each),
            )


def _grown(server: Server, rig: Rig, num_swaps: int) -> Series:
    """The memory of the server after many swaps over that after two: in RAM, and on the GPU where there is one."""
    assert rig.second is not None
    pair = [replace(server, model=path.stem) for path in (rig.model, rig.second)]
    used: list[list[int]] = []
    for number in range(num_swaps):
        each = pair[number % 2]
        each.ask(each.prompts.tokens("swap", _SMALL), 1)  # the same again, so that the cache does not grow
        if number % 2:
            used.append([resident_bytes(server.process.pid), *_gpu_mib()])
    return Series(tuple(last / first for first, last in zip(used[0], used[-1], strict=True)))


def _gpu_mib() -> list[int]:
    command = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return []
    return [int(line) for line in said.split()]


def _load_times(path: Path) -> list[float]:
    """Milliseconds to load the weights alone, in a process of its own."""
    ran = subprocess.run(
        [sys.executable, "-m", "lab.gpu.swaps", str(path)], capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise BenchError(f"{path} could not be loaded alone: {ran.stderr.strip().splitlines()[-1]}")
    return [float(line) for line in ran.stdout.split()]


def _load_again_and_again(path: str) -> list[float]:
    """The milliseconds of each time but the first: the driver is ready then, as it is in a server."""
    library, times = load_library(), []
    for _ in range(1 + _NUM_LOADS):
        began = time.perf_counter()
        handle = load_weights(library, Path(path), ModelSettings())
        times.append(1000 * (time.perf_counter() - began))
        library.dll.llama_model_free(handle)
    return times[1:]


if __name__ == "__main__":
    print(*_load_again_and_again(sys.argv[1]))
