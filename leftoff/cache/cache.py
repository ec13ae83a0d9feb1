"""The cache as its users see it: begin a turn, say what was decoded, finish it.

It decides where a prompt resumes, moves the state there, takes snapshots while the prompt is read, and keeps what was
read. It decodes nothing: the scheduler does, between `begin` and `finish`, pausing at `Turn.next_piece_end`.
"""

import time
from collections.abc import Callable

import numpy as np

from leftoff.cache.budget import Clock
from leftoff.cache.cargo import Cargo
from leftoff.cache.costs import Costs
from leftoff.cache.disk_tier import DiskTier
from leftoff.cache.fetch import Fetch
from leftoff.cache.lookup import Lookup
from leftoff.cache.placement import Placement
from leftoff.cache.plan import Plan, Planner
from leftoff.cache.policy import Policy, ValuePerByte
from leftoff.cache.report import Knowledge, ReuseReport, explain
from leftoff.cache.restore import Restorer
from leftoff.cache.sequences import EngineSequence, SequenceTable, Shared
from leftoff.cache.tier import Tier
from leftoff.cache.tiers import PAGE_TOKENS, SEEN_TOKENS, DiskSettings, Tiers
from leftoff.cache.turn import Turn
from leftoff.engine.errors import BlobError, NoRoomError
from leftoff.engine.memory.base import Memory
from leftoff.types import Logits, Prompt, Tokens, owner_of


class Cache:
    """Trees in RAM and perhaps on disk, and the sequences of one engine. Belongs to the engine's thread."""

    def __init__(
        self,
        memory: Memory,
        *,
        num_slots: int,
        budget_bytes: int,
        disk: DiskSettings | None = None,
        policy: Policy | None = None,
        placement: Placement | None = None,
        costs: Costs | None = None,
        clock: Clock = time.monotonic,
        page_tokens: int = PAGE_TOKENS,
        seen_tokens: int = SEEN_TOKENS,
    ) -> None:
        self.memory = memory
        self.costs = costs or Costs()
        self.sequences = SequenceTable(memory, num_slots, clock)
        ram = Tier("RAM", budget_bytes, policy or ValuePerByte(), clock)
        self.tiers = Tiers(
            memory, self.costs, clock, self.sequences, ram, disk, page_tokens=page_tokens, seen_tokens=seen_tokens
        )
        self._placement = placement or Placement()
        self._planner = Planner(memory, self.costs, self._placement)
        self._restorer = Restorer(memory, self.costs, self.sequences, self.tiers)

    @property
    def ram(self) -> Tier:
        return self.tiers.ram

    @property
    def disk(self) -> DiskTier | None:
        return self.tiers.disk

    # --- a turn

    def begin(self, prompt: Prompt, namespace: str = "", fetch: Fetch | None = None) -> Turn | None:
        """Moves the deepest usable state into a slot. None while every slot is busy.

        What has to come from disk is waited for, unless `fetch` has brought it.
        """
        if not 0 < prompt.length <= self.memory.num_cells:
            raise NoRoomError(f"a prompt of {prompt.length} tokens: it must have between 1 and {self.memory.num_cells}")
        if not self.sequences.idle_slots:
            return None
        self.tiers.hold_back(is_busy=True)
        shared = self.sequences.shared_with(prompt.tokens, namespace)
        found, plan, cargo = self._choose(prompt.tokens, namespace, shared, fetch)
        knowledge = self._knowledge(prompt, found, shared, namespace)
        report = explain(prompt.tokens, plan.resume, "disk" if cargo.fetched else plan.source, knowledge)
        if plan.point is not None:
            self.tiers.use(plan.point)
        try:
            sequence = self._restorer.carry_out(prompt, plan, cargo, namespace)
        except BlobError:
            if self.disk is None or not cargo.fetched:
                raise
            self.disk.forget(*cargo.fetched)  # its seal is right, but this engine does not take it
            return self.begin(prompt, namespace)
        return self._begun(prompt, sequence, plan, report, found)

    def kept_length(self, prompt: Prompt) -> int:
        """How many tokens of a prompt can be resumed from once it has been read."""
        return self._placement.on_grid(prompt.length)

    def preview(self, prompt: Prompt, namespace: str = "") -> Plan:
        """How the prompt would resume if it began now. Changes nothing."""
        return self._best(prompt.tokens, namespace)[1]

    def fetch(self, prompt: Prompt, namespace: str = "") -> Fetch | None:
        """Begins to bring what the prompt needs from disk, while others run on. None if it needs nothing from there."""
        if self.disk is None:
            return None
        found, plan = self._best(prompt.tokens, namespace)
        items = self._planner.cargo(plan, found).on_disk
        return self.disk.fetch(items) if items else None

    def advance(self, turn: Turn, tokens: Tokens, logits: Logits | None = None) -> None:
        """After a decode of `tokens`. The logits of the prompt's last token, a copy, are kept with its snapshot."""
        turn.sequence.append(tokens)
        if turn.wants_snapshot:
            at_end = turn.position == turn.prompt.length
            self._snapshot(turn, logits if at_end else None)

    def finish(self, turn: Turn) -> None:
        """The request is over, or was cancelled: what was read stays usable, and its slot is free."""
        sequence = turn.sequence
        if self.memory.length(sequence.seq) > sequence.length:  # an error came between: nobody knows what else it holds
            self.memory.drop(sequence.seq)
        sequence.length = self.memory.length(sequence.seq)
        sequence.is_busy = False
        sequence.is_saved = sequence.is_empty
        self.sequences.use(sequence)
        if not sequence.is_empty:
            self.tiers.learn(sequence)
        if self._placement.grid:
            self._restorer.leave(sequence, self._placement.on_grid(min(sequence.length, turn.prompt.length)))

    def make_cells(self, num_tokens: int) -> None:
        """Frees cells for tokens to be decoded, at the cost of parked states and idle slots."""
        self._restorer.make_cells(num_tokens)

    def drop_one_idle(self) -> bool:
        """Drop one idle sequence, where `make_cells` was not enough: moving shared cells takes more. False if none."""
        return self._restorer.drop_one_idle()

    # --- keeping

    def save_idle(self) -> None:
        """Writes behind: to be called when nothing is running."""
        for sequence in self.sequences.idle_slots:
            self.tiers.save_ahead(sequence)
        self.tiers.settle()
        self.tiers.hold_back(is_busy=False)

    def close(self, timeout_s: float) -> None:
        """Saves what rests, and gives the disk so long to write it."""
        self.save_idle()
        self.tiers.close(timeout_s)

    def pin(self, tokens: Tokens, namespace: str = "") -> int:
        """Keeps the way to the end of a prompt that was read: the bytes that are never evicted now, 0 if it is gone."""
        for sequence in self.sequences.idle_slots:
            self.tiers.save(sequence)
        return self.tiers.pin(tokens, namespace)

    def clear(self, is_meant: Callable[[str], bool] = lambda _: True) -> None:
        """Forgets everything but what is in use, or what is meant of it: some namespaces."""
        for sequence in self.sequences:
            if not sequence.is_busy and is_meant(sequence.namespace):
                self._restorer.forget(sequence)
        self.tiers.clear(is_meant)

    def check_integrity(self) -> None:
        """Raises AssertionError if anything contradicts itself. For tests."""
        self.tiers.check_integrity()
        for sequence in self.sequences:
            assert sequence.is_busy or sequence.length == self.memory.length(sequence.seq), (
                f"{sequence} and the engine disagree"
            )

    # --- details of a turn

    def _best(self, tokens: Tokens, namespace: str) -> tuple[Lookup, Plan]:
        found = self.tiers.find(tokens, namespace)
        return found, self._planner.best(tokens, found, self.sequences.shared_with(tokens, namespace))

    def _choose(
        self, tokens: Tokens, namespace: str, shared: Shared, fetch: Fetch | None
    ) -> tuple[Lookup, Plan, Cargo]:
        """The best way whose cargo is really there: what turns out to be lost is forgotten, and another one chosen."""
        while True:
            found = self.tiers.find(tokens, namespace)
            plan = self._planner.best(tokens, found, shared)
            cargo = self._planner.cargo(plan, found)
            if plan.sequence is not None and not self._restorer.fits_beside(plan.sequence, cargo):
                shared = {sequence: common for sequence, common in shared.items() if sequence is not plan.sequence}
                continue
            if not cargo.on_disk or self.disk is None:
                return found, plan, cargo
            if fetch is None or not fetch.has(cargo.records):
                fetch = self.disk.fetch(cargo.on_disk)
            brought = cargo.brought(fetch)
            if brought is not None:
                self.costs.saw_disk(fetch.nbytes, fetch.ms)
                return found, plan, brought
            self.disk.forget(*fetch.lost())

    def _begun(self, prompt: Prompt, sequence: EngineSequence, plan: Plan, report: ReuseReport, found: Lookup) -> Turn:
        try:
            turn = self._turn(prompt, sequence, report, found)
            if plan.resume == prompt.length and plan.point is not None:
                turn.logits = plan.point.logits
            elif plan.resume in turn.stops:
                self._snapshot(turn)
        except BaseException:
            sequence.is_busy = False
            raise
        return turn

    def _turn(self, prompt: Prompt, sequence: EngineSequence, report: ReuseReport, found: Lookup) -> Turn:
        grid = self._placement.grid
        if not self.memory.kind.has_snapshots:
            return Turn(prompt, sequence, report, () if grid else (prompt.length,), grid=grid)
        snapshot_bytes = self.memory.snapshot_bytes(prompt.length)
        resume = sequence.length
        shared = tuple(length for length in found.shared_lengths if length > resume)
        gap, is_scarce = self._placement.gap(snapshot_bytes, self.costs), self.ram.budget.is_nearly_full
        stops = self._placement.stops(prompt, resume, shared, gap, is_scarce=is_scarce)
        return Turn(
            prompt,
            sequence,
            report,
            stops,
            self._placement.marks(prompt, shared, stops),
            self._placement.reply_gap(snapshot_bytes, self.costs),
            grid=grid,
        )

    def _snapshot(self, turn: Turn, logits: Logits | None = None) -> None:
        is_durable = turn.position in turn.marks
        # not at the end of the prompt: somebody waits for the first token
        self.tiers.keep_point(turn.sequence, logits, is_durable=is_durable, with_pages=turn.is_reading)

    def _knowledge(self, prompt: Prompt, found: Lookup, shared: Shared, namespace: str) -> Knowledge:
        match = found.deepest
        known, before, differs = match.length, match.continuation, match.leaves_midway
        for sequence, common in shared.items():
            if common > known:
                known, before, differs = common, sequence.tokens[common:], sequence.length > common
        # of the same owner: to whom else a text is known would tell one tenant what another has sent
        salts = [name for name in self.ram.trees if name != namespace and owner_of(name) == owner_of(namespace)]
        others = (self.ram.match(name, prompt.tokens).length for name in salts)
        lost = max((min(node.lost_until, match.length) for node in match.path), default=0)
        edited = differs and known > (prompt.header_end or 0)
        return Knowledge(known, max(others, default=0), lost, edited, before if differs else np.empty(0, np.int32))
