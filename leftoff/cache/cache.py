"""The prompt cache as the scheduler sees it: begin a turn, report what was decoded, finish it.

The cache decides where a prompt resumes, moves that state into the engine, takes snapshots during prefill, and saves
what was computed. It decodes nothing: the scheduler does, between `begin` and `finish`, in chunks that end at
`Turn.next_chunk_end`.
"""

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace

import numpy as np

from leftoff.cache.blob_store import Wanted
from leftoff.cache.blob_tier import BlobTier, TierSettings
from leftoff.cache.budget import ByteBudget, Clock
from leftoff.cache.capacity import Capacity, TreeLock
from leftoff.cache.costs import Costs
from leftoff.cache.fetch import Fetches, Preparation
from leftoff.cache.lookup import Lookup, generation_of, knowledge_of, look_up
from leftoff.cache.placement import Placement
from leftoff.cache.plan import Plan, Planner
from leftoff.cache.policy import Policy, ValuePerByte
from leftoff.cache.report import ReuseReport, explain
from leftoff.cache.restore import Restorer, Stay
from leftoff.cache.sequences import EngineSequence, SequenceTable
from leftoff.cache.tier import Tier
from leftoff.cache.tiers import PAGE_TOKENS, SEEN_TOKENS, Tiers
from leftoff.cache.turn import Turn
from leftoff.engine.errors import BlobError, NoRoomError
from leftoff.engine.memory.base import Memory
from leftoff.picture_tokens import marked
from leftoff.types import Logits, Prompt, Tokens


@dataclass(frozen=True)
class Loaded:
    """The sequence that something was loaded into, and how many tokens."""

    seq: int
    num_tokens: int


class Cache:
    """Trees in RAM and the tiers below, and the sequences of one engine. Belongs to the engine's thread.

    Where models share a capacity, that thread holds `lock` while it uses the cache: see `capacity.py`.
    """

    def __init__(
        self,
        memory: Memory,
        *,
        num_slots: int,
        budget_bytes: int | Capacity,
        tiers: Sequence[TierSettings] = (),
        policy: Policy | None = None,
        placement: Placement | None = None,
        costs: Costs | None = None,
        clock: Clock = time.monotonic,
        page_tokens: int = PAGE_TOKENS,
        seen_tokens: int = SEEN_TOKENS,
        stay: Stay | None = None,
    ) -> None:
        """`tiers` are those below RAM, the faster first.

        With `stay` None, idle sequences stay in the engine if it has more of them than slots.
        """
        self.memory = memory
        self.costs = costs or Costs()
        self.lock = TreeLock()
        policy = policy or ValuePerByte()
        self.ram = Tier(ByteBudget("RAM", budget_bytes, policy, clock, lock=self.lock, costs=self.costs), clock)
        self.sequences = SequenceTable(memory, num_slots, clock, self.ram.budget)
        with self.lock:
            self.ram.budget.capacity.join(self.ram.budget)
            self.tiers = Tiers(memory, self.costs, clock, self.sequences, self.ram, tiers, page_tokens, seen_tokens)
        # the first that this machine does not share with others
        self.disk: BlobTier | None = next((tier for tier in self.tiers.lower if not tier.is_shared), None)
        self._clock = clock
        self._page_tokens = page_tokens
        self._placement = placement or Placement()
        self._planner = Planner(memory, self.costs, self._placement)
        stay = stay or (Stay.ALWAYS if memory.num_sequences > num_slots else Stay.NEVER)
        self._restorer = Restorer(memory, self.costs, self.sequences, self.tiers, stay)
        self._last_plan: Plan | None = None

    # --- a turn

    def plan(self, prompt: Prompt, namespace: str = "") -> Plan:
        """How the prompt would resume if it began now. Changes nothing.

        One admission asks up to three times: whether to wait for another prompt, whether to fetch from disk, and how
        to begin. The plan is made once, as long as neither trees nor sequences change in between.
        """
        last = self._last_plan
        if last is None or not last.lookup.is_of(prompt, namespace, self.generation):
            last = self._last_plan = self._planner.best(self._lookup(prompt, namespace))
        return last

    def prepare(self, prompt: Prompt, namespace: str = "", wake: Callable[[], None] = lambda: None) -> Preparation:
        """Starts to look the prompt up, and to bring what it needs from below RAM, while others run."""
        known = self.plan(prompt, namespace).resume
        searches = self.tiers.search(Wanted(namespace, prompt.tokens, known))
        return Preparation(searches, lambda: self.fetch(prompt, namespace), wake)

    def fetch(self, prompt: Prompt, namespace: str = "") -> Fetches | None:
        """Starts to fetch what the prompt needs from below RAM, while others run. None if that is nothing."""
        plan = self.plan(prompt, namespace)
        return self._fetch(plan) if plan.records else None

    def begin(
        self, prompt: Prompt, namespace: str = "", fetch: Fetches | None = None, *, reads_all: bool = False
    ) -> Turn | None:
        """Restores the plan's state into a slot. None while every slot is busy.

        Blocks for what must come from below RAM, unless `fetch` has brought it. If `reads_all`,
        nothing is restored: the caller wants the logits at every position, and those are not kept.
        """
        if not 0 < prompt.length <= self.memory.num_cells:
            raise NoRoomError(f"a prompt of {prompt.length} tokens: it must have between 1 and {self.memory.num_cells}")
        if not self.sequences.num_free_slots:
            return None
        self.tiers.hold_back(is_busy=True)
        plan = Plan(self._lookup(prompt, namespace)) if reads_all else self._loadable_plan(prompt, namespace, fetch)
        report = explain(prompt, plan.resume, plan.source, plan.reuses, knowledge_of(plan.lookup, self.ram))
        if reads_all:
            report = report.for_logprobs()
        if plan.point is not None:
            self.tiers.hit(plan.point)
        try:
            sequence = self._restorer.restore(prompt, plan, namespace)
        except BlobError:
            if plan.fetched:  # the checksum is right, but this engine does not accept it
                self.tiers.forget(plan.fetched)
            elif plan.pages or plan.snapshot is not None:  # they could not be written to RAM
                self.ram.drop(namespace, prompt.tokens[: plan.resume], plan.shared)
            else:
                raise
            return self.begin(prompt, namespace)
        return self._begun(prompt, sequence, plan, report)

    def known_as(self, prompt: Prompt) -> Prompt:
        """The prompt with its tokens as the trees know them.

        With a grid, text before a picture is marked, and an adapter's part begins where a chunk of the grid does.
        """
        grid, tokens = self._placement.grid, prompt.tokens
        if grid and prompt.pictures:
            tokens = marked(tokens, prompt.pictures, grid)
        if start := prompt.adapted_from:
            leaves_at = self._placement.on_grid(prompt.leaves_at, prompt.pictures)
            tokens = prompt.adapters.marked(tokens, start, leaves_at)
        return prompt if tokens is prompt.tokens else replace(prompt, tokens=tokens)

    def kept_length(self, prompt: Prompt) -> int:
        """How many tokens of a prompt can be resumed from once it has been read."""
        return self._placement.on_grid(prompt.length, prompt.pictures)

    def advance(self, turn: Turn, tokens: Tokens, logits: Logits | None = None) -> None:
        """To be called after `tokens` were decoded. `logits`, a copy, are those of the prompt's last token."""
        if turn.is_reading:  # as the trees know them
            tokens = turn.prompt.tokens[turn.position : turn.position + tokens.size]
        turn.sequence.append(tokens)
        if turn.wants_snapshot(tokens.size):
            kept = logits if turn.position == turn.prompt.length else None
            self.tiers.save_point(turn.sequence, kept, is_durable=turn.is_durable, with_pages=self._saves_pages(turn))

    def _saves_pages(self, turn: Turn) -> bool:
        """Whether pages are saved with the next point: not at the end of the prompt, as the client waits for a token.

        A GPU waits meanwhile; there the pages of a prompt that is alone are saved when nothing runs any more.
        """
        return turn.is_reading and (not self.memory.group_bytes or self.sequences.num_busy > 1)

    def finish(self, turn: Turn) -> None:
        """Frees the slot of a request that has ended or was cancelled. What it computed stays usable."""
        sequence = turn.sequence
        if self.memory.length(sequence.seq) > sequence.length:  # after an error, the engine holds unknown tokens
            self.memory.drop(sequence.seq)
        sequence.finish(self.memory.length(sequence.seq), self._clock())
        if not sequence.is_empty:
            self.tiers.remember(sequence)
        if not self._placement.grid:
            self.tiers.share(sequence)
        else:
            kept = self._placement.on_grid(min(sequence.length, turn.prompt.length), turn.prompt.pictures)
            self._restorer.empty_engine(sequence, kept)

    def make_cells(self, num_tokens: int) -> None:
        """Frees cells for tokens to be decoded, by dropping idle sequences."""
        self._last_plan = None  # the engine is about to change, and the plan would keep evicted pages alive
        if self.memory.free_cells < num_tokens:
            self._restorer.make_cells(num_tokens)

    def drop_one_idle(self) -> bool:
        """Drops one idle sequence, where `make_cells` was not enough: moving shared cells takes more. False if none."""
        return self._restorer.drop_one_idle()

    # --- keeping

    def save_idle(self, is_wanted: Callable[[], bool] | None = None) -> None:
        """Writes behind. To be called when nothing runs. Stops as soon as a request `is_wanted`."""
        for sequence in self.sequences.idle:
            if is_wanted is not None and is_wanted():
                return
            if not sequence.is_saved:
                self.tiers.write_behind(sequence, is_wanted)
        self.tiers.catch_up()
        if self._last_plan is not None and self._last_plan.lookup.generation != self.generation:
            self._last_plan = None  # it would keep pages alive that were evicted
        self.tiers.hold_back(is_busy=False)

    def leave_engine(self) -> None:
        """Saves all sequences, as far as the budgets allow, and drops them. To be called when nothing runs."""
        while self.drop_one_idle():
            pass
        self._last_plan = None

    def close(self, timeout_s: float) -> None:
        """Saves idle sequences, and gives the tiers below RAM `timeout_s` to write them."""
        with self.lock:
            self.save_idle()
            for tier in self.tiers:
                tier.budget.capacity.join(instead_of=[tier.budget])
        self.tiers.close(timeout_s)

    def pin(self, tokens: Tokens, namespace: str = "", *, is_pinned: bool = True) -> int:
        """Protects the resume point at the end of a prompt that was read from eviction, and the pages that lead there.

        With `is_pinned` False it is protected no longer. Returns their bytes; 0 if there is no such point any more.
        """
        for sequence in self.sequences.idle:
            self.tiers.save(sequence)
        parts, nbytes = self._lookup(Prompt(tokens), namespace).parts, 0
        for tier in self.tiers:
            point = tier.match(namespace, tokens).point_at(int(tokens.size))
            if point is not None:
                tier.budget.pin(point, is_pinned=is_pinned)
                nbytes = nbytes or point.total_bytes + sum(part.page.nbytes for part in parts)
        return nbytes

    def drop(self, tokens: Tokens, start: int, namespace: str = "") -> int:
        """Forgets all that follows the first `start` of these tokens on their path, but for what running requests hold.

        Returns the bytes that this has freed.
        """
        for sequence, common in self.sequences.shared_with(tokens, namespace).items():
            if common > start and common in (tokens.size, sequence.length) and not sequence.is_busy:
                self.tiers.save(sequence)  # for what comes before `start`
                self._restorer.forget(sequence)
        used_bytes = sum(tier.budget.used_bytes for tier in self.tiers)
        for tier in self.tiers:
            tier.drop(namespace, tokens, start)
        return used_bytes - sum(tier.budget.used_bytes for tier in self.tiers)

    def fetch_sequence(self, tokens: Tokens, namespace: str) -> Fetches | None:
        """Starts to fetch what `load_sequence` needs from disk. None if that is nothing."""
        return self.fetch(self._following(tokens), namespace)

    def load_sequence(self, tokens: Tokens, namespace: str, fetch: Fetches | None = None) -> Loaded | None:
        """Brings what is kept of a sequence back into the engine, and leaves it there. None while all slots are busy.

        With a grid, one request has the engine for itself. A model that sleeps is not woken for it: the prompt that
        goes on from there does that, and finds the sequence where it is.
        """
        if self.memory.is_asleep:
            return Loaded(0, self.plan(self._following(tokens), namespace).resume)
        is_disturbing = self._placement.grid is not None and self.sequences.num_busy > 0
        turn = self.begin(self._following(tokens), namespace, fetch) if not is_disturbing else None
        if turn is None:
            return None
        loaded = Loaded(turn.seq, turn.position)
        self.finish(turn)
        return loaded

    def drop_sequence(self, sequence: EngineSequence) -> None:
        """Drops an idle sequence from the engine; the tiers keep what they have of it."""
        self._restorer.forget(sequence)

    def _following(self, tokens: Tokens) -> Prompt:
        """A prompt that goes on from all of these tokens; the one behind them is not read."""
        return Prompt(np.append(tokens[: self.memory.num_cells - 1], np.int32(0)))

    def clear(self, is_meant: Callable[[str], bool] = lambda _: True) -> list[Future[None]]:
        """Forgets all namespaces that are meant, but for the sequences of running requests.

        The futures are of the media below RAM, which delete on threads of their own.
        """
        for sequence in self.sequences:
            if not sequence.is_busy and is_meant(sequence.namespace):
                self._restorer.forget(sequence)
        return self.tiers.clear(is_meant)

    def check_integrity(self) -> None:
        """Raises AssertionError if anything contradicts itself. For tests."""
        for tier in self.tiers:
            tier.check_integrity()
        for sequence in self.sequences:
            length = self.memory.length(sequence.seq)
            assert sequence.is_busy or sequence.length == length, f"{sequence}: the engine holds {length}"

    # --- planning

    @property
    def generation(self) -> int:
        """Grows with every change to what a plan is made of."""
        return generation_of(self.tiers, self.sequences)

    def _lookup(self, prompt: Prompt, namespace: str) -> Lookup:
        return look_up(prompt, namespace, self.tiers, self.sequences)

    def _loadable_plan(self, prompt: Prompt, namespace: str, fetch: Fetches | None) -> Plan:
        """The best plan that fits into the engine and whose data is all in RAM.

        A sequence that takes too many cells is not shared from, and a lost record is forgotten: then the next best is
        tried.
        """
        plan, besides = self.plan(prompt, namespace), set[EngineSequence]()
        self._last_plan = None
        while True:
            if not self._restorer.fits(plan):
                assert plan.sequence is not None
                besides.add(plan.sequence)
                if not plan.sequence.is_busy:  # so that nothing is lost when it has to go
                    self.tiers.save(plan.sequence)
            elif not plan.records:
                return plan
            else:
                if fetch is None or not fetch.has(plan.records):
                    fetch = self._fetch(plan)
                loadable = plan.with_fetched(fetch)
                if loadable is not None:
                    fetch.measure()
                    return loadable
                self.tiers.forget(fetch.lost())
            plan = self._planner.best(self._lookup(prompt, namespace), besides)

    def _fetch(self, plan: Plan) -> Fetches:
        """Reading anew would take as long as the prefill of all tokens that are not shared."""
        return self.tiers.fetch(plan.records, self.costs.prefill_ms(plan.resume - plan.shared) / 1000)

    # --- details of a turn

    def _begun(self, prompt: Prompt, sequence: EngineSequence, plan: Plan, report: ReuseReport) -> Turn:
        try:
            turn = self._turn(prompt, sequence, report, plan.lookup)
            if plan.resume == prompt.length and plan.point is not None:
                turn.logits = plan.point.logits
            elif plan.resume in turn.snapshot_positions:
                self.tiers.save_point(sequence, None, is_durable=turn.is_durable, with_pages=self._saves_pages(turn))
        except BaseException:
            sequence.finish(self.memory.length(sequence.seq), self._clock())
            raise
        return turn

    def _turn(self, prompt: Prompt, sequence: EngineSequence, report: ReuseReport, lookup: Lookup) -> Turn:
        grid = self._placement.grid
        if not self.memory.kind.has_snapshots:
            return Turn(prompt, sequence, report, () if grid else (prompt.length,), grid=grid)
        ram, resume = self.ram.budget, sequence.length
        gaps = self._placement.gaps(
            self.memory.snapshot_bytes(prompt.length),
            self.costs,
            prompt.length - resume,
            length=prompt.length,
            token_bytes=0.0 if ram.is_mostly_free else self.memory.page_bytes(self._page_tokens) / self._page_tokens,
            is_scarce=ram.is_nearly_full,
        )
        shared, num_busy = lookup.shared_lengths(after=resume), self.sequences.num_busy
        positions = self._placement.snapshot_positions(prompt, resume, shared, gaps)
        return Turn(
            prompt,
            sequence,
            report,
            positions,
            self._placement.durable_positions(prompt, shared, positions),
            self._placement.reply_gap(self.memory.snapshot_bytes(prompt.length, resume), self.costs, num_busy),
            grid=grid,
        )
