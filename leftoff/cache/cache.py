"""The cache as its users see it: begin a turn, say what was decoded, finish it.

It decides where a prompt resumes, moves the state there, takes snapshots while the prompt is read, and keeps what was
read. It decodes nothing: whoever drives the engine does, between `begin` and `finish`, pausing at `Turn.next_stop`.
"""

import time
from collections.abc import Sequence

import numpy as np

from leftoff.cache.costs import Costs
from leftoff.cache.keeper import Keeper
from leftoff.cache.live import Live, LiveTable
from leftoff.cache.placement import Placement
from leftoff.cache.plan import Planner, Way
from leftoff.cache.policy import GreedyDual, Policy
from leftoff.cache.report import Knowledge, explain
from leftoff.cache.store import Clock, Store
from leftoff.cache.trie import Match, Trie
from leftoff.cache.turn import Turn
from leftoff.core import Logits, Prompt, Tokens
from leftoff.engine.base import Memory, MemoryKind, PagePart
from leftoff.engine.errors import EngineError, NoRoomError

PAGE_TOKENS = 256
SEEN_TOKENS = 16 << 20  # remembered for the report once their data is gone: 64 MiB


class Cache:
    """A tree per namespace, one byte budget, and the live sequences of one engine. Belongs to the engine's thread."""

    def __init__(
        self,
        memory: Memory,
        *,
        num_slots: int,
        budget_bytes: int,
        policy: Policy | None = None,
        placement: Placement | None = None,
        costs: Costs | None = None,
        clock: Clock = time.monotonic,
        page_tokens: int = PAGE_TOKENS,
        seen_tokens: int = SEEN_TOKENS,
    ) -> None:
        self.memory = memory
        self.costs = costs or Costs()
        self.store = Store("RAM", budget_bytes, policy or GreedyDual(), clock)
        self.lives = LiveTable(memory, num_slots, clock)
        self.trees: dict[str, Trie] = {}
        self._planner = Planner(memory, self.costs)
        self._keeper = Keeper(memory, self.store, self.costs, page_tokens)
        self._placement = placement or Placement()
        self._clock = clock
        self._seen_tokens = seen_tokens

    # --- a turn

    def begin(self, prompt: Prompt, namespace: str = "") -> Turn | None:
        """Moves the deepest usable state into a slot. None while every slot is busy."""
        if not 0 < prompt.length <= self.memory.num_cells:
            raise NoRoomError(f"a prompt of {prompt.length} tokens: it must have between 1 and {self.memory.num_cells}")
        if self.lives.idle_slot() is None:
            return None
        match = self._tree(namespace).match(prompt.tokens)
        lives = self.lives.in_namespace(namespace)
        way = self._planner.best(prompt.tokens, match, lives)
        knowledge = self._knowledge(prompt, match, lives, namespace)
        report = explain(prompt.tokens, way.resume, way.source, knowledge)
        live = self._carry_out(prompt, match, way, namespace)
        turn = Turn(prompt, live, report, self._stops(prompt, match, way), self._reply_gap(prompt))
        if way.resume == prompt.length and way.entry is not None:
            turn.logits = way.entry.logits
        elif way.resume in turn.stops:
            self._snapshot(live)
        return turn

    def preview(self, prompt: Prompt, namespace: str = "") -> int:
        """Where the prompt would resume if it began now. Changes nothing."""
        match = self._tree(namespace).match(prompt.tokens)
        return self._planner.best(prompt.tokens, match, self.lives.in_namespace(namespace)).resume

    def advance(self, turn: Turn, tokens: Tokens, logits: Logits | None = None) -> None:
        """After a decode of `tokens`. The logits of the prompt's last token are kept with its snapshot."""
        turn.live.append(tokens)
        if turn.is_at_stop:
            at_end = turn.position == turn.prompt.length
            self._snapshot(turn.live, logits if at_end else None)

    def finish(self, turn: Turn) -> None:
        """The request is over, or was cancelled: what was read stays usable, and its slot is free."""
        live = turn.live
        live.length = self.memory.length(live.seq)
        live.is_busy = False
        live.is_saved, live.is_kept = live.is_empty, False
        self.lives.use(live)
        if not live.is_empty:
            self._tree(live.namespace).insert(live.tokens, self._clock())
            self._forget_oldest()

    def make_cells(self, num_tokens: int) -> None:
        """Frees cells for tokens to be decoded, at the cost of parked states and idle slots."""
        self._drop_until_free(num_tokens)
        free = self.memory.free_cells
        if free < num_tokens:
            raise NoRoomError(f"no room for {num_tokens} more tokens: {free} of {self.memory.num_cells} are free")

    # --- keeping

    def save(self, live: Live) -> None:
        """Puts what the tree lacks of a live sequence into it, as far as the budget allows."""
        if not live.is_saved:
            live.is_saved = True
            tree = self._tree(live.namespace)
            live.is_kept = self._keeper.keep_all(tree, tree.insert(live.tokens, self._clock()), live)

    def save_idle(self) -> None:
        """Writes behind: to be called when nothing is running."""
        for live in self.lives.slots:
            if not live.is_busy:
                self.save(live)

    def clear(self) -> None:
        """Forgets everything but what is in use."""
        for live in self.lives:
            if not live.is_busy:
                live.is_saved = True
                self._drop(live)
        for tree in self.trees.values():
            for entry in [entry for node in tree.nodes() for entry in node.entries]:
                self.store.drop(entry)
        self.trees = {}

    def check_integrity(self) -> None:
        """Raises AssertionError if anything contradicts itself. For tests."""
        for tree in self.trees.values():
            tree.check_integrity()
        self.store.check_integrity(list(self.trees.values()))
        for live in self.lives:
            assert live.is_busy or live.length == self.memory.length(live.seq), f"{live} and the engine disagree"

    # --- carrying out

    def _carry_out(self, prompt: Prompt, match: Match, way: Way, namespace: str) -> Live:
        pages = self._planner.pages(way, match)
        if way.entry is not None and way.entry.row >= 0:
            self.store.hit(way.entry)
        target = self._target(way)
        target.is_busy = True
        if way.live is None or way.live is not target or not way.goes_on:
            self._set_aside(target, way)
            self._restore(target, way, pages)
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

    def _restore(self, target: Live, way: Way, pages: Sequence[PagePart]) -> None:
        snapshot = way.snapshot
        nbytes = sum(part.page.nbytes for part in pages) + (snapshot.nbytes if snapshot else 0)
        began = time.perf_counter()
        if target is not way.live:
            self.memory.drop(target.seq)
        # Room is made before: a restore in place that finds none leaves nothing to share from.
        self._drop_until_free(sum(part.num_tokens for part in pages), (target, way.live))
        try:
            self.memory.restore(target.seq, way.resume, share=way.share, pages=pages, snapshot=snapshot)
        except EngineError:
            target.is_busy, target.length = False, self.memory.length(target.seq)
            raise
        self.costs.saw_load(nbytes, 1000 * (time.perf_counter() - began))

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

    def _stops(self, prompt: Prompt, match: Match, way: Way) -> tuple[int, ...]:
        if not self.memory.kind.has_snapshots:
            return (prompt.length,)
        shared = (match.length,) if match.leaves_midway and match.length > way.resume else ()
        gap = self._placement.gap(self.memory.snapshot_bytes(prompt.length), self.costs)
        return self._placement.stops(prompt, way.resume, shared, gap)

    def _reply_gap(self, prompt: Prompt) -> int | None:
        if not self.memory.kind.has_snapshots:
            return None
        return self._placement.reply_gap(self.memory.snapshot_bytes(prompt.length), self.costs)

    def _snapshot(self, live: Live, logits: Logits | None = None) -> None:
        tree = self._tree(live.namespace)
        match = tree.insert(live.tokens, self._clock())
        self._keeper.keep_snapshot(tree, match, live, logits.copy() if logits is not None else None)

    def _knowledge(self, prompt: Prompt, match: Match, lives: Sequence[Live], namespace: str) -> Knowledge:
        known, before, differs = match.length, match.continuation, match.leaves_midway
        for live in lives:
            common = live.shared_with(prompt.tokens)
            if common > known:
                known, before, differs = common, live.tokens[common:], live.length > common
        others = (tree.match(prompt.tokens).length for name, tree in self.trees.items() if name != namespace)
        lost = max((min(node.lost_until, match.length) for node in match.path), default=0)
        edited = differs and known > (prompt.header_end or 0)
        return Knowledge(known, max(others, default=0), lost, edited, before if differs else np.empty(0, np.int32))

    def _tree(self, namespace: str) -> Trie:
        return self.trees.setdefault(namespace, Trie())

    def _forget_oldest(self) -> None:
        """Bounds the tokens that are remembered only to explain."""
        if sum(tree.num_tokens for tree in self.trees.values()) <= self._seen_tokens:
            return
        for tree in self.trees.values():
            ghosts = [node for node in tree.nodes() if node.is_leaf and not node.is_live]
            for node in sorted(ghosts, key=lambda node: node.last_used)[: len(ghosts) // 2 + 1]:
                if node.parent is not None and node.is_leaf and not node.is_live:  # it may have grown by a merge
                    tree.forget(node)
