"""The chat workloads of `lab.bench` on both servers: seconds that the client waits, and prompt tokens computed."""

from dataclasses import replace

from lab.bench.play import Run, play
from lab.bench.side import Running
from lab.bench.texts import Texts
from lab.bench.workload import WORKLOADS, Workload
from lab.gpu.record import NONE, Series
from lab.gpu.rig import Rig, Server

_SLOTS = 4
_FULL_LONG = 65536  # texts are shorter where long prompts are: a random model has several tokens for each word
_SEED = 7
_PLAYED: tuple[Workload, ...] = (
    WORKLOADS["agent-loop"],
    replace(WORKLOADS["agents"], title=f"4 agents on {_SLOTS} slots"),
    WORKLOADS["edit"],
    WORKLOADS["document"],
    WORKLOADS["subagents"],
)


def measure(rig: Rig) -> None:
    """Each server alone, with its cache as the workload before has left it: no two workloads share a text."""
    rig.record.say(f"workloads: {', '.join(workload.title for workload in _PLAYED)}; each server alone")
    with rig.leftoff(_SLOTS) as server:
        ours = [_play(rig, server, number) for number in range(len(_PLAYED))]
    for number, own in enumerate(ours):
        _add(rig, number, own)
    with rig.peer(_SLOTS) as server:
        for number, own in enumerate(ours):
            _add(rig, number, own, _play(rig, server, number))


def _play(rig: Rig, server: Server, number: int) -> Run:
    workload = _PLAYED[number]
    texts = Texts(_SEED + number, scale=min(1.0, rig.long / _FULL_LONG))
    with Running(server.url).open(workload.setup) as station:
        run = play(workload.script(texts), station, workload.setup)
    rig.record.say(f"  {server.name}: {workload.title} {run.wall_ms / 1000:.1f} s, computed {run.computed:,}")
    return run


def _add(rig: Rig, number: int, own: Run, peer: Run | None = None) -> None:
    note = f"unavoidable {own.unavoidable:,}" if own.unavoidable else ""
    theirs = _series(peer) if peer else NONE
    rig.record.add("workloads", _PLAYED[number].title, "s", _series(own), theirs, note=note)


def _series(run: Run) -> Series:
    return Series((run.wall_ms / 1000,), (run.computed,))
