"""First tokens of prompts that are known but for a little: agents in turn, the same again, edits."""

import time
from collections.abc import Collection

from lab.gpu import goals
from lab.gpu.agents import FROM_END, NUM_AGENTS, NUM_EDITED, NUM_NEW, Agents, joined
from lab.gpu.record import NONE, Series
from lab.gpu.rig import Rig, Server

PARKED_PARTS = ("parked", "same", "edit")
_TURNS, _PEER_TURNS = 3, 1  # llama-server takes a second and more for each of the four
_EDITS, _PEER_EDITS = 10, 2
_REST_S = 1.0
_FEW, _ENOUGH = 2, 4
_MEASURES = {  # the part by whose name it is asked for, its title, its goal
    "ram": ("ram", f"{NUM_AGENTS} agents in turn on {_FEW} slots", goals.FROM_RAM),
    "parked": ("parked", f"{NUM_AGENTS} agents in turn on {_ENOUGH} slots", goals.PARKED),
    "same": ("same", "the same prompt again", goals.SAME),
    "near": ("edit", f"edit {FROM_END} tokens before the end", goals.EDIT_NEAR_END),
    "anywhere": ("edit", "edit at a random place", goals.EDIT_ANYWHERE),
}
_NOTES = {
    "ram": f"{NUM_NEW} new tokens each; leftoff with `--parked 0`, so that they come back from RAM",
    "parked": f"{NUM_NEW} new tokens each; their sequences may stay in the engine, from the second turn on",
    "near": f"cut there, then {NUM_EDITED} other tokens",
    "anywhere": f"cut there, then {NUM_EDITED} other tokens; {_EDITS} places, of llama-server {_PEER_EDITS}",
}


def measure_ram(rig: Rig) -> None:
    """More agents than slots: each comes back from RAM."""
    rig.record.say(f"ram: {NUM_AGENTS} agents in turn on {_FEW} slots, each server alone; `--parked 0`")
    with rig.leftoff(_FEW, "--parked", "0") as server:
        ours = _resumed(rig, server, ("ram",), _TURNS)
    _add(rig, ours)
    with rig.peer(_FEW) as server:
        _add(rig, ours, _resumed(rig, server, ("ram",), _PEER_TURNS))


def measure_parked(rig: Rig, wanted: Collection[str]) -> None:
    """As many slots as agents: their sequences stay in the engine. The same servers are asked again, and with edits."""
    wanted = [part for part in PARKED_PARTS if part in wanted]
    rig.record.say(f"{', '.join(wanted)}: 4 conversations of {rig.long:,} tokens, {_ENOUGH} slots, each server alone")
    with rig.leftoff(_ENOUGH) as server:
        ours = _resumed(rig, server, wanted, _TURNS, _EDITS)
    _add(rig, ours)
    with rig.peer(_ENOUGH) as server:
        _add(rig, ours, _resumed(rig, server, wanted, _PEER_TURNS, _PEER_EDITS))


def _add(rig: Rig, ours: dict[str, Series], theirs: dict[str, Series] | None = None) -> None:
    """A row for each measure; added again, in its place, when llama-server's figures are known."""
    for name, own in ours.items():
        part, title, goal = _MEASURES[name]
        rig.record.add(part, title, "ms", own, (theirs or {}).get(name, NONE), goal, note=_NOTES.get(name, ""))


def _resumed(
    rig: Rig, server: Server, wanted: Collection[str], num_turns: int, num_edits: int = 0
) -> dict[str, Series]:
    agents = Agents(server, rig.long)
    rig.record.say(f"  {server.name}: first turns {agents.begin().show(in_order=True)} ms")
    found: dict[str, Series] = {}
    if "parked" in wanted:  # the long prompts of the others have driven them out
        rig.record.say(f"  {server.name}: second turns {agents.turn().show(in_order=True)} ms")
    for name in ("ram", "parked"):
        if name in wanted:
            found[name] = joined([agents.turn() for _ in range(num_turns)])
    if "same" in wanted:
        time.sleep(_REST_S)
        found["same"] = agents.again(-1)
    if "edit" in wanted:
        time.sleep(_REST_S)
        found["near"] = agents.edited_near_end(-1)
        found["anywhere"] = agents.edited_anywhere(num_edits)
    for name, one in found.items():
        rig.record.say(f"  {server.name}: {name} {one.show(in_order=True)} ms, computed {[*one.computed]}")
    return found
