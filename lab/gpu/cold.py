"""Long prompts that nobody has seen, one after the other after a start, and the RAM that leftoff keeps of them."""

import time
from dataclasses import dataclass

import httpx

from lab.bench.process import resident_bytes
from lab.bench.table import show_mib
from lab.gpu import goals
from lab.gpu.record import Series
from lab.gpu.rig import Rig, Server

_TITLE = "cold prompts in a row"
_NUM_PROMPTS = 4
_SLOTS = 4
_SAVED_S, _POLL_S = 10.0, 0.1


@dataclass(frozen=True)
class _Kept:
    """Bytes in leftoff's RAM tier."""

    total: int
    snapshots: int
    num_snapshots: int

    @property
    def pages(self) -> int:
        """The attention KV: each page once."""
        return self.total - self.snapshots


def measure(rig: Rig) -> None:
    """Each server alone."""
    rig.record.say(f"cold: {_NUM_PROMPTS} prompts of {rig.long:,} tokens after a start, each server alone")
    with rig.leftoff(_SLOTS) as server:
        before = resident_bytes(server.process.pid)
        ours = _read(server, rig.long)
        rig.record.add("cold", _TITLE, "ms", ours, in_order=True)
        kept = _kept_when_idle(server)
        _add_memory(rig, kept, resident_bytes(server.process.pid) - before)
    with rig.peer(_SLOTS) as server:
        theirs = _read(server, rig.long)
    note = _ratios(ours, theirs)
    rig.record.add("cold", _TITLE, "ms", ours, theirs, goals.COLD, note=note, in_order=True)


def _read(server: Server, num_tokens: int) -> Series:
    prompts = [server.prompts.tokens(f"cold {number}", num_tokens) for number in range(_NUM_PROMPTS)]
    replies = [server.ask(prompt, 1) for prompt in prompts]
    return Series(tuple(one.first_token_ms for one in replies), tuple(one.computed for one in replies))


def _ratios(ours: Series, theirs: Series) -> str:
    ratios = [f"{own / other:.2f}" for own, other in zip(ours.values, theirs.values, strict=True)]
    return f"leftoff / llama-server: {', '.join(ratios)}"


def _add_memory(rig: Rig, kept: _Kept, growth: int) -> None:
    if not kept.pages:
        rig.record.say("  leftoff keeps no pages in RAM: its share of the KV cannot be told")
        return
    note = (
        f"of {_NUM_PROMPTS} conversations: pages {show_mib(kept.pages)}, {kept.num_snapshots} snapshots "
        f"{show_mib(kept.snapshots)}; {kept.pages / _NUM_PROMPTS / rig.long / 1000:.1f} kB of KV per token; "
        f"the process grew by {show_mib(growth)}"
    )
    ratio = Series((kept.total / kept.pages,))
    rig.record.add("cold", "RAM of a conversation", "times its KV", ratio, goal=goals.RAM_PER_KV, note=note)


def _kept_when_idle(server: Server) -> _Kept:
    """What RAM keeps, once every sequence in the engine has its copy there."""
    deadline = time.monotonic() + _SAVED_S
    while True:
        view = httpx.get(f"{server.url}/cache?n=100000", timeout=60).raise_for_status().json()
        is_saved = all(slot["is_saved"] for slot in view["slots"] if slot["tokens"])
        if is_saved or time.monotonic() > deadline:
            break
        time.sleep(_POLL_S)
    entries = [entry for tree in view["trees"] for node in tree["nodes"] for entry in node["entries"]]
    total = sum(tree["bytes"] for tree in view["trees"])
    return _Kept(total, sum(entry["bytes"] for entry in entries), len(entries))
