"""One kind of model, operation by operation, on leftoff and on llama-server: a column of the matrix.

Each server is started once, alone; leftoff a second time after kill -9. The operations follow each other so that each
begins where the one before has left the server: as few requests as give medians.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import httpx

from lab.gpu import goals
from lab.gpu.agents import FROM_END, NUM_AGENTS, NUM_NEW, NUM_REPLY, Agents, joined, series
from lab.gpu.goals import Goal
from lab.gpu.record import NONE, Series, listed
from lab.gpu.rig import Rig, Server
from lab.gpu.streams import rate

# What is measured, in the order of the tables: its title and its unit.
OPERATIONS = {
    "cold": ("cold prompts in a row", "ms"),
    "shared": ("further agents on a half-shared prompt", "ms"),
    "engine": ("agents in turn, from the engine", "ms"),
    "ram": ("agents in turn, from RAM", "ms"),
    "same": ("the same prompt again", "ms"),
    "near": (f"edit {FROM_END} tokens before the end", "ms"),
    "anywhere": ("edit anywhere", "ms"),
    "kill": ("next turn after kill -9", "ms"),
    "alone": (f"{NUM_NEW} new tokens alone", "ms"),
    "decode 1": ("decode, 1 stream", "tok/s"),
    "decode 8": ("decode, 8 streams", "tok/s"),
    "disk": ("written to disk", "GB"),
}
_IN_ORDER = ("cold", "shared", "ram", "kill")
_STREAMS = (1, 8)
_BUS_BYTES_PER_MS = 20e6
_SETTLED_S, _POLL_S = 1.5, 0.25
_LONGEST_REST_S = 30
_PATIENCE_S = 60

_Found = Callable[[str, Series], None]  # takes a figure of one of the servers


@dataclass(frozen=True)
class Extent:
    """How much is asked. The long prompts of a second pass take their time: fewer of them."""

    num_cold: int = 4
    num_agents: int = NUM_AGENTS
    num_places: int = 6
    num_peer_places: int = 2
    num_rounds: int = 4  # of decode
    rest_s: float = 0.5  # before the same prompt is asked again
    is_brief: bool = False  # without decode and kill -9


BRIEF = Extent(num_cold=2, num_agents=2, num_places=2, num_peer_places=1, is_brief=True)


@dataclass
class Cells:
    """The figures of one kind so far. Each is recorded when it is there, and again when llama-server's is."""

    rig: Rig
    name: str
    extent: Extent = Extent()
    _ours: dict[str, Series] = field(default_factory=dict)
    _theirs: dict[str, Series] = field(default_factory=dict)
    _notes: dict[str, str] = field(default_factory=dict)
    _ram_ms: float = 0.0  # to load what an agent needs

    def measure(self) -> None:
        self._measure_leftoff()
        self._measure_peer()

    # --- leftoff

    def _measure_leftoff(self) -> None:
        with TemporaryDirectory(dir=self.rig.folder, prefix="leftoff-gpu-") as folder:
            with self._leftoff(Path(folder)) as server:
                self._decode(server, self._found)
                self._cold(server, self._found)
                agents = self._begin(server, self._found)
                agents.turn()  # the long prompts of the others have driven them out of the engine
                in_turn = self._turns(agents, "engine")
                self._last_round(agents, in_turn, self._found)
                self._found("anywhere", agents.edited_anywhere(self.extent.num_places))
                self._from_ram(server, agents)
                if not self.extent.is_brief:
                    _rest(server)
                self._saw_disk(server)
            if not self.extent.is_brief:
                with self._leftoff(Path(folder)) as server:
                    agents.server = server
                    self._found("kill", self._turns(agents, "kill"))

    @contextmanager
    def _leftoff(self, folder: Path) -> Iterator[Server]:
        with self.rig.leftoff(self._num_slots, cache=folder) as server:
            yield server

    def _turns(self, agents: Agents, name: str) -> Series:
        """The next turn of each agent; notes where their tokens came from."""
        turns, sources = [], []
        for number in range(agents.count):
            turns.append(agents.turn_of(number))
            sources.append(source(agents.server))
        self._notes[name] = f"from {', '.join(dict.fromkeys(sources))}"
        return joined(turns)

    def _from_ram(self, server: Server, agents: Agents) -> None:
        """Each agent comes back into an empty engine, and goes on there, alone."""
        loaded, live, sources, sizes = [], [], [], []
        for number in range(agents.count):
            free_engine(server)
            loaded.append(agents.turn_of(number))
            sources.append(source(server))
            sizes.append(resident_bytes(server))
            live.append(agents.turn_of(number))
        self._ram_ms = median(sizes) / _BUS_BYTES_PER_MS
        self._notes["ram"] = f"from {', '.join(dict.fromkeys(sources))}; {listed([size / 1e6 for size in sizes])} MB"
        self._found("alone", joined(live))
        self._found("ram", joined(loaded))
        self._show("engine")  # held against the new tokens alone

    def _saw_disk(self, server: Server) -> None:
        disk = _disk(server)
        self._notes["disk"] = f"at most {disk['most_bytes'] / 1e9:.2f} GB kept"
        self._found("disk", Series((disk["written_bytes"] / 1e9,)))

    # --- llama-server

    def _measure_peer(self) -> None:
        with self.rig.peer(self._num_slots) as server:
            self._decode(server, self._found_of_peer)
            self._cold(server, self._found_of_peer)
            if not self.extent.is_brief:
                self._found_of_peer("kill", self._theirs["cold"])  # it keeps nothing: it reads everything
            agents = self._begin(server, self._found_of_peer)
            self._last_round(agents, NONE, self._found_of_peer)
            self._found_of_peer("anywhere", agents.edited_anywhere(self.extent.num_peer_places))

    def _found_of_peer(self, name: str, found: Series) -> None:
        self._theirs[name] = found
        self._show(name)
        if name == "engine":  # it has no other way
            self._found_of_peer("ram", found)

    # --- both

    def _decode(self, server: Server, found: _Found) -> None:
        """First, while no conversation takes room in the engine."""
        if self.extent.is_brief:
            return
        rate(server, max(_STREAMS), "warm-up", num_reply=NUM_REPLY)
        rounds = range(self.extent.num_rounds)
        for num_streams in _STREAMS:
            rates = [rate(server, num_streams, f"decode {num_streams} {number}") for number in rounds]
            found(f"decode {num_streams}", Series(tuple(rates)))

    def _cold(self, server: Server, found: _Found) -> None:
        prompts = [server.prompts.tokens(f"cold {number}", self.rig.long) for number in range(self.extent.num_cold)]
        found("cold", series([server.ask(prompt, NUM_REPLY) for prompt in prompts]))

    def _begin(self, server: Server, found: _Found) -> Agents:
        agents = Agents(server, self.rig.long, self.extent.num_agents)
        first = agents.begin()
        found("shared", Series(first.values[1:], first.computed[1:]))
        return agents

    def _last_round(self, agents: Agents, in_turn: Series, found: _Found) -> None:
        """A turn of each agent, then the same prompt again, then an edit of it near its end."""
        turns, same, near = [in_turn], [], []
        for number in range(agents.count):
            turns.append(agents.turn_of(number))
            time.sleep(self.extent.rest_s)
            same.append(agents.again(number))
            near.append(agents.edited_near_end(number))
        for name, parts in (("engine", turns), ("same", same), ("near", near)):
            found(name, joined(parts))

    # --- the record

    def _found(self, name: str, found: Series) -> None:
        self._ours[name] = found
        self._show(name)

    def _show(self, name: str) -> None:
        title, unit = OPERATIONS[name]
        ours, theirs = self._ours.get(name, NONE), self._theirs.get(name, NONE)
        note = self._notes.get(name, "")
        if name == "cold" and ours.values and theirs.values:
            ratios = [own / other for own, other in zip(ours.values, theirs.values, strict=True)]
            note = f"leftoff / llama-server: {', '.join(f'{ratio:.2f}' for ratio in ratios)}"
        self.rig.record.add(
            self.name, title, unit, ours, theirs, self._goal(name), note=note, in_order=name in _IN_ORDER
        )

    def _goal(self, name: str) -> Goal | None:
        alone = self._ours.get("alone", NONE).values
        alone_ms = median(alone) if alone else 0.0
        match name:
            case "alone" | "disk":
                return None
            case "decode 1" | "decode 8":
                return goals.times_as_fast(1)
            case "cold":
                return goals.median_within(1.03)
            case "near":
                return goals.no_slower_than_peer(unless_ms=100)
            case "engine" if alone:
                limit = goals.median_below(1.5 * alone_ms + 10, "≤ 1.5 times the new tokens alone + 10 ms")
                return goals.all_of(goals.no_slower_than_peer(), limit)
            case "ram" if alone:
                limit = goals.median_below(self._ram_ms + alone_ms + 20, "≤ bytes ÷ 20 GB/s + the new tokens + 20 ms")
                return goals.all_of(goals.no_slower_than_peer(), limit)
            case _:
                return goals.no_slower_than_peer()

    @property
    def _num_slots(self) -> int:
        return self.extent.num_agents if self.extent.is_brief else max(_STREAMS)


def free_engine(server: Server) -> None:
    """Drops all sequences from leftoff's engine; its RAM has them then."""
    for slot in _occupied(server):
        _act(server, slot, "save")
        _act(server, slot, "erase")


def resident_bytes(server: Server) -> int:
    """The pages and the snapshot of the largest sequence in leftoff's engine: what it took to load it."""
    return max((int(_act(server, slot, "save")["n_written"]) for slot in _occupied(server)), default=0)


def source(server: Server) -> str:
    """Where leftoff had the tokens of the last prompt that were not computed."""
    (last,) = httpx.get(f"{server.url}/cache/requests?n=1", timeout=_PATIENCE_S).raise_for_status().json()["requests"]
    return str(last["source"]) if last["reused"] else "nowhere"


def _occupied(server: Server) -> list[int]:
    return [slot["id"] for slot in _cache(server)["slots"] if slot["tokens"] and not slot["is_busy"]]


def _disk(server: Server) -> dict[str, int]:
    """How full leftoff's disk is, how full it ever was, and what was written to it."""
    return next(tier for tier in _cache(server)["tiers"] if tier["name"] == "disk")


def _cache(server: Server) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{server.url}/cache?n=1", timeout=_PATIENCE_S).raise_for_status().json()
    return found


def _act(server: Server, slot: int, action: str) -> dict[str, int]:
    answer = httpx.post(
        f"{server.url}/slots/{slot}?action={action}", json={"filename": f"matrix-{slot}"}, timeout=_PATIENCE_S
    )
    done: dict[str, int] = answer.raise_for_status().json()
    return done


def _rest(server: Server) -> None:
    """Waits until nothing waits for the disk, and nothing was added to it for a while."""
    began = changed = time.monotonic()
    kept = 0
    while time.monotonic() < min(changed + _SETTLED_S, began + _LONGEST_REST_S):
        disk = _disk(server)
        if disk["used_bytes"] != kept or disk["waiting"]:
            kept, changed = disk["used_bytes"], time.monotonic()
        time.sleep(_POLL_S)
