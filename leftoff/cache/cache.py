"""The cache as its users see it: begin a turn, say what was decoded, finish it.

It decides where a prompt resumes, moves the state there, takes snapshots while the prompt is read, and keeps what was
read. It decodes nothing: whoever drives the engine does, between `begin` and `finish`, pausing at `Turn.next_stop`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from leftoff.cache.cargo import Cargo
from leftoff.cache.costs import Costs
from leftoff.cache.disk import DiskTier
from leftoff.cache.entry import Entry
from leftoff.cache.fetch import Fetch
from leftoff.cache.found import Found
from leftoff.cache.keeper import Keeper
from leftoff.cache.live import Live, LiveTable
from leftoff.cache.placement import Placement
from leftoff.cache.plan import Planner, Way
from leftoff.cache.policy import Policy, ValuePerByte
from leftoff.cache.report import Knowledge, ReuseReport, explain
from leftoff.cache.shelf import Shelf
from leftoff.cache.source import EngineSource
from leftoff.cache.store import Clock, Store
from leftoff.cache.tier import Tier
from leftoff.cache.trie import Trie
from leftoff.cache.turn import Turn
from leftoff.core import Logits, Prompt, Tokens
from leftoff.engine.base import Memory, MemoryKind
from leftoff.engine.errors import EngineError, NoRoomError

PAGE_TOKENS = 256
SEEN_TOKENS = 16 << 20  # remembered for the report once their data is gone: 64 MiB


@dataclass(frozen=True)
class Disk:
    """A second tier: where it is kept, and how many bytes it may have."""

    shelf: Shelf
    budget_bytes: int
    policy: Policy = field(default_factory=ValuePerByte)


class Cache:
    """Trees in RAM and perhaps on disk, and the live sequences of one engine. Belongs to the engine's thread."""

    def __init__(
        self,
        memory: Memory,
        *,
        num_slots: int,
        budget_bytes: int,
        disk: Disk | None = None,
        policy: Policy | None = None,
        placement: Placement | None = None,
        costs: Costs | None = None,
        clock: Clock = time.monotonic,
        page_tokens: int = PAGE_TOKENS,
        seen_tokens: int = SEEN_TOKENS,
    ) -> None:
        self.memory = memory
        self.costs = costs or Costs()
        self.ram = Tier("RAM", budget_bytes, policy or ValuePerByte(), clock)
        self.lives = LiveTable(memory, num_slots, clock)
        source = EngineSource(memory, self.costs)
        self.disk: DiskTier | None = None
        if disk is not None:
            self.disk = DiskTier(disk.shelf, disk.budget_bytes, disk.policy, clock, memory, source, page_tokens)
        self._planner = Planner(memory, self.costs)
        self._keeper = Keeper(memory, self.store, source, page_tokens)
        self._placement = placement or Placement()
        self._seen_tokens = seen_tokens

    @property
    def tiers(self) -> list[Tier]:
        """The fastest first."""
        return [self.ram, self.disk] if self.disk is not None else [self.ram]

    @property
    def store(self) -> Store:
        return self.ram.store

    @property
    def trees(self) -> dict[str, Trie]:
        return self.ram.trees

    # --- a turn

    def begin(self, prompt: Prompt, namespace: str = "", fetch: Fetch | None = None) -> Turn | None:
        """Moves the deepest usable state into a slot. None while every slot is busy.

        What has to come from disk is waited for, unless `fetch` has brought it.
        """
        if not 0 < prompt.length <= self.memory.num_cells:
            raise NoRoomError(f"a prompt of {prompt.length} tokens: it must have between 1 and {self.memory.num_cells}")
        if self.lives.idle_slot() is None:
            return None
        lives = self.lives.in_namespace(namespace)
        found, way, cargo = self._choose(prompt.tokens, namespace, lives, fetch)
        knowledge = self._knowledge(prompt, found, lives, namespace)
        report = explain(prompt.tokens, way.resume, "disk" if cargo.is_fetched else way.source, knowledge)
        self._use(way.entry)
        live = self._carry_out(prompt, way, cargo, namespace)
        turn = self._turn(prompt, live, report, found)
        if way.resume == prompt.length and way.entry is not None:
            turn.logits = way.entry.logits
        elif way.resume in turn.stops:
            self._snapshot(turn)
        return turn

    def preview(self, prompt: Prompt, namespace: str = "") -> int:
        """Where the prompt would resume if it began now. Changes nothing."""
        return self._best(prompt.tokens, namespace)[1].resume

    def fetch(self, prompt: Prompt, namespace: str = "") -> Fetch | None:
        """Begins to bring what the prompt needs from disk, while others run on. None if it needs nothing from there."""
        if self.disk is None:
            return None
        found, way = self._best(prompt.tokens, namespace)
        cargo = Cargo(tuple(self._planner.pages(way, found)), way.snapshot)
        return self.disk.fetch(cargo.on_disk) if cargo.on_disk else None

    def advance(self, turn: Turn, tokens: Tokens, logits: Logits | None = None) -> None:
        """After a decode of `tokens`. The logits of the prompt's last token are kept with its snapshot."""
        turn.live.append(tokens)
        if turn.is_at_stop:
            at_end = turn.position == turn.prompt.length
            self._snapshot(turn, logits if at_end else None)

    def finish(self, turn: Turn) -> None:
        """The request is over, or was cancelled: what was read stays usable, and its slot is free."""
        live = turn.live
        live.length = self.memory.length(live.seq)
        live.is_busy = False
        live.is_saved, live.is_kept = live.is_empty, False
        self.lives.use(live)
        if not live.is_empty:
            self.ram.insert(live.namespace, live.tokens)
            self.ram.forget_oldest(self._seen_tokens)

    def make_cells(self, num_tokens: int) -> None:
        """Frees cells for tokens to be decoded, at the cost of parked states and idle slots."""
        self._drop_until_free(num_tokens)
        free = self.memory.free_cells
        if free < num_tokens:
            raise NoRoomError(f"no room for {num_tokens} more tokens: {free} of {self.memory.num_cells} are free")

    # --- keeping

    def save(self, live: Live) -> None:
        """Puts what the tiers lack of a live sequence into them, as far as their budgets allow."""
        if live.is_saved:
            return
        live.is_saved = True
        match = self.ram.insert(live.namespace, live.tokens)
        live.is_kept = self._keeper.keep_all(self.ram.tree(live.namespace), match, live)
        if self.disk is not None:
            self.disk.keep(live, match)
            self.disk.forget_oldest(self._seen_tokens)

    def save_idle(self) -> None:
        """Writes behind: to be called when nothing is running."""
        for live in self.lives.slots:
            if not live.is_busy:
                self.save(live)
        if self.disk is not None:
            self.disk.settle()

    def close(self, timeout_s: float) -> None:
        """Saves what rests, and gives the disk so long to write it."""
        self.save_idle()
        if self.disk is not None:
            self.disk.shelf.close(timeout_s)

    def pin(self, tokens: Tokens, namespace: str = "") -> int:
        """Keeps the way to the end of a prompt that was read: the bytes that are never evicted now, 0 if it is gone."""
        self.save_idle()
        found, nbytes = self._find(tokens, namespace), 0
        for tier in self.tiers:
            match = tier.match(namespace, tokens)
            for entry in [entry for entry in match.entries() if entry.position == tokens.size]:
                tier.store.pin(entry)
                nbytes = nbytes or entry.nbytes + sum(part.page.nbytes for part in found.parts)
        return nbytes

    def clear(self, is_meant: Callable[[str], bool] = lambda _: True) -> None:
        """Forgets everything but what is in use, or what is meant of it: some namespaces."""
        for live in self.lives:
            if not live.is_busy and is_meant(live.namespace):
                live.is_saved = True
                self._drop(live)
        for tier in self.tiers:
            tier.clear(is_meant)

    def check_integrity(self) -> None:
        """Raises AssertionError if anything contradicts itself. For tests."""
        for tier in self.tiers:
            tier.check_integrity()
        for live in self.lives:
            assert live.is_busy or live.length == self.memory.length(live.seq), f"{live} and the engine disagree"

    # --- choosing

    def _find(self, tokens: Tokens, namespace: str) -> Found:
        ram = self.ram.match(namespace, tokens)
        return Found(ram, self.disk.match(namespace, tokens)) if self.disk is not None else Found(ram)

    def _best(self, tokens: Tokens, namespace: str) -> tuple[Found, Way]:
        found = self._find(tokens, namespace)
        return found, self._planner.best(tokens, found, self.lives.in_namespace(namespace))

    def _choose(
        self, tokens: Tokens, namespace: str, lives: Sequence[Live], fetch: Fetch | None
    ) -> tuple[Found, Way, Cargo]:
        """The best way whose cargo is really there: what turns out to be lost is forgotten, and another one chosen."""
        while True:
            found = self._find(tokens, namespace)
            way = self._planner.best(tokens, found, lives)
            cargo = Cargo(tuple(self._planner.pages(way, found)), way.snapshot)
            if way.live is not None and not self._fits_beside(way.live, cargo):
                lives = [live for live in lives if live is not way.live]
                continue
            if not cargo.on_disk or self.disk is None:
                return found, way, cargo
            if fetch is None or not fetch.has(cargo.records):
                fetch = self.disk.fetch(cargo.on_disk)
            brought = cargo.brought(fetch)
            if brought is not None:
                self.costs.saw_disk(fetch.nbytes, fetch.ms)
                return found, way, brought
            for record in fetch.lost():
                self.disk.forget(record)

    def _fits_beside(self, live: Live, cargo: Cargo) -> bool:
        """A long sequence that shares little is in the way of what is to be loaded. Nothing is lost if it is saved."""
        needed = sum(part.num_tokens for part in cargo.pages)
        if not needed:
            return True
        busy = sum(other.length for other in self.lives if other.is_busy and other is not live)
        fits = live.length + busy + needed <= self.memory.num_cells
        if not fits and not live.is_busy:
            self.save(live)
        return fits

    def _use(self, entry: Entry | None) -> None:
        for tier in self.tiers:
            if entry is not None and tier.store.holds(entry):
                tier.store.hit(entry)

    # --- carrying out

    def _carry_out(self, prompt: Prompt, way: Way, cargo: Cargo, namespace: str) -> Live:
        target = self._target(way)
        target.is_busy = True
        if way.live is None or way.live is not target or not way.goes_on:
            self._set_aside(target, way)
            self._restore(target, way, cargo)
        target.replace(prompt.tokens[: way.resume], namespace)
        self._clear_the_way(target)
        return target

    def _target(self, way: Way) -> Live:
        if way.goes_on and way.live is not None and way.live.is_slot and not way.live.is_busy:
            return way.live
        idle = self.lives.idle_slot()
        assert idle is not None
        return idle

    def _set_aside(self, live: Live, way: Way) -> None:
        """Saves what is about to be overwritten, and parks it if a sequence is spare that is not needed right now."""
        self.save(live)
        if way.is_cut_back and self.memory.kind is MemoryKind.WINDOW:
            return  # parking may overwrite what the window still remembers
        spare = self.lives.spare_to_use(besides=way.live)
        if spare is not None and not live.is_empty and self.memory.is_whole(live.seq):
            self.memory.park(live.seq, spare.seq)
            spare.replace(live.tokens, live.namespace)
            spare.last_used = live.last_used

    def _restore(self, target: Live, way: Way, cargo: Cargo) -> None:
        began = time.perf_counter()
        if target is not way.live:
            self.memory.drop(target.seq)
        # Room is made before: a restore in place that finds none leaves nothing to share from.
        self._drop_until_free(sum(part.num_tokens for part in cargo.pages), (target, way.live))
        try:
            self.memory.restore(target.seq, way.resume, share=way.share, pages=cargo.pages, snapshot=cargo.snapshot)
        except EngineError:
            target.is_busy, target.length = False, self.memory.length(target.seq)
            raise
        self.costs.saw_load(cargo.nbytes, 1000 * (time.perf_counter() - began))

    def _clear_the_way(self, running: Live) -> None:
        """Idle sequences slow the running ones, whose attention passes over all cells: what is kept elsewhere goes.

        Coming back costs a few milliseconds. With spare sequences the user has chosen to pay in speed for them.
        """
        if not self.memory.kind.has_pages or self.lives.spares:
            return
        for live in self.lives.slots:
            if live is not running and not live.is_busy and not live.is_empty:
                self.save(live)
                if live.is_kept:
                    self._drop(live)

    def _drop_until_free(self, num_cells: int, kept: Sequence[Live | None] = ()) -> None:
        while self.memory.free_cells < num_cells and (victim := self.lives.droppable(kept)) is not None:
            self._drop(victim)

    def _drop(self, live: Live) -> None:
        self.save(live)
        self.memory.drop(live.seq)
        live.length = 0

    # --- details of a turn

    def _turn(self, prompt: Prompt, live: Live, report: ReuseReport, found: Found) -> Turn:
        if not self.memory.kind.has_snapshots:
            return Turn(prompt, live, report, (prompt.length,))
        snapshot_bytes = self.memory.snapshot_bytes(prompt.length)
        resume = live.length
        shared = tuple(length for length in found.shared_lengths if length > resume)
        stops = self._placement.stops(prompt, resume, shared, self._placement.gap(snapshot_bytes, self.costs))
        return Turn(
            prompt,
            live,
            report,
            stops,
            self._placement.marks(prompt, shared, stops),
            self._placement.reply_gap(snapshot_bytes, self.costs),
        )

    def _snapshot(self, turn: Turn, logits: Logits | None = None) -> None:
        live = turn.live
        tree, match = self.ram.tree(live.namespace), self.ram.insert(live.namespace, live.tokens)
        kept = logits.copy() if logits is not None else None
        is_mark = live.length in turn.marks
        self._keeper.keep_point(tree, match, live, live.length, kept, is_mark=is_mark)
        if is_mark and self.disk is not None:
            self.disk.keep_mark(live, match)

    def _knowledge(self, prompt: Prompt, found: Found, lives: Sequence[Live], namespace: str) -> Knowledge:
        match = found.deepest
        known, before, differs = match.length, match.continuation, match.leaves_midway
        for live in lives:
            common = live.shared_with(prompt.tokens)
            if common > known:
                known, before, differs = common, live.tokens[common:], live.length > common
        others = (tree.match(prompt.tokens).length for name, tree in self.trees.items() if name != namespace)
        lost = max((min(node.lost_until, match.length) for node in match.path), default=0)
        edited = differs and known > (prompt.header_end or 0)
        return Knowledge(known, max(others, default=0), lost, edited, before if differs else np.empty(0, np.int32))
