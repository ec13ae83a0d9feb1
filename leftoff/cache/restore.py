"""Brings states into the engine and makes room for them there. What goes is saved before."""

import time
from collections.abc import Sequence

from leftoff.cache.cargo import Cargo
from leftoff.cache.costs import Costs
from leftoff.cache.plan import Way
from leftoff.cache.sequences import Live, LiveTable
from leftoff.cache.tiers import Tiers
from leftoff.engine.errors import NoRoomError
from leftoff.engine.memory.base import Memory, MemoryKind
from leftoff.types import Prompt


class Carrier:
    """Carries out what was planned. Chooses nothing but what has to make way."""

    def __init__(self, memory: Memory, costs: Costs, lives: LiveTable, tiers: Tiers) -> None:
        self._memory = memory
        self._costs = costs
        self._lives = lives
        self._tiers = tiers

    def carry_out(self, prompt: Prompt, way: Way, cargo: Cargo, namespace: str) -> Live:
        """A slot that stands where the prompt goes on. There must be an idle one."""
        if not any(live.is_busy for live in self._lives):
            self._clear_the_way(way.live)
        target = self._target(way)
        target.is_busy = True
        try:
            self._move(target, prompt, way, cargo, namespace)
        except BaseException:
            target.is_busy, target.length = False, self._memory.length(target.seq)
            raise
        return target

    def _move(self, target: Live, prompt: Prompt, way: Way, cargo: Cargo, namespace: str) -> None:
        if way.live is None or way.live is not target or not way.goes_on:
            if not target.is_empty:
                self._tiers.swap(target, prompt.tokens[: way.resume], namespace)
            self._set_aside(target, way)
            self._restore(target, way, cargo)
        target.replace(prompt.tokens[: way.resume], namespace)
        target.is_doubled = True
        if not way.goes_on:
            self._tiers.leave_behind(target, way.entry)

    def make_cells(self, num_tokens: int) -> None:
        """Frees cells for tokens to be decoded, at the cost of parked states and idle slots."""
        self._drop_until_free(num_tokens)
        free = self._memory.free_cells
        if free < num_tokens:
            raise NoRoomError(f"no room for {num_tokens} more tokens: {free} of {self._memory.num_cells} are free")

    def drop_one_idle(self, kept: Sequence[Live | None] = ()) -> bool:
        """Drops what is missed least of the idle sequences, after saving it. False if there is none but `kept`."""
        victim = self._lives.droppable(kept)
        if victim is not None:
            self.drop(victim)
        return victim is not None

    def fits_beside(self, live: Live, cargo: Cargo) -> bool:
        """A long sequence that shares little is in the way of what is to be loaded. Nothing is lost if it is saved."""
        needed = sum(part.num_tokens for part in cargo.pages)
        if not needed:
            return True
        busy = sum(other.length for other in self._lives if other.is_busy and other is not live)
        fits = live.length + busy + needed <= self._memory.num_cells
        if not fits and not live.is_busy:
            self._tiers.save(live)
        return fits

    def drop(self, live: Live) -> None:
        self._tiers.save(live)
        self.forget(live)

    def leave(self, live: Live, length: int) -> None:
        """Keeps the first `length` tokens of a sequence, as far as the budgets allow, and empties the engine."""
        live.length, live.is_saved = length, False
        self._tiers.save(live)
        self.forget(live)
        self._memory.clear()

    def forget(self, live: Live) -> None:
        """Drops it without keeping anything."""
        self._tiers.leave_behind(live, None)
        self._memory.drop(live.seq)
        live.length, live.is_saved, live.is_doubled = 0, True, False

    def _target(self, way: Way) -> Live:
        if way.live is not None and way.live.is_slot and not way.live.is_busy:
            others = [live for live in self._lives if live is not way.live and not live.is_empty]
            # whoever is alone in the engine is cut back in place, and so stays at the first cell
            if way.goes_on or (not others and self._save_elsewhere(way.live)):
                return way.live
        if self._tiers.ram.store.is_nearly_full:
            # a slot holds a long sequence as easily as a short one, and RAM does not: the short one goes there
            return self._lives.least_missed(self._tiers.lacking_bytes)
        return self._lives.least_missed()

    def _set_aside(self, live: Live, way: Way) -> None:
        """Parks what is about to be overwritten, if a sequence is spare that is not needed right now."""
        if way.is_cut_back and self._memory.kind is MemoryKind.WINDOW:
            return  # parking may overwrite what the window still remembers
        spare = self._lives.spare_to_use(besides=way.live)
        if spare is not None and not live.is_empty and self._memory.is_whole(live.seq):
            self._memory.park(live.seq, spare.seq)
            spare.replace(live.tokens, live.namespace)
            spare.last_used = live.last_used

    def _restore(self, target: Live, way: Way, cargo: Cargo) -> None:
        began = time.perf_counter()
        if target is not way.live:
            self._memory.drop(target.seq)
        # Room is made before: a restore in place that finds none leaves nothing to share from.
        self._drop_until_free(sum(part.num_tokens for part in cargo.pages), (target, way.live))
        self._memory.restore(target.seq, way.resume, share=way.share, pages=cargo.pages, snapshot=cargo.snapshot)
        self._costs.saw_load(cargo.nbytes, 1000 * (time.perf_counter() - began))

    def _clear_the_way(self, source: Live | None) -> None:
        """Idle sequences leave the engine before a request that runs alone, all but the one it resumes from.

        So it stands at the first cell with nothing behind it, and its logits do not depend on what ran before. It is
        faster too: attention passes over the cells of all sequences. Beside others that run nobody leaves: the holes
        would have to be closed by moving those that run.
        """
        for live in self._lives.idle_slots:
            if live is not source and not live.is_empty and self._save_elsewhere(live):
                self.drop(live)

    def _save_elsewhere(self, live: Live) -> bool:
        """Puts into RAM what it lacks of an idle sequence. True if the sequence may leave the engine now.

        Where RAM is short it stays: reading it again would cost more than the milliseconds of coming back. With spare
        sequences the user has chosen to pay in speed for them.
        """
        if not self._memory.kind.has_pages or self._lives.spares or self._tiers.ram.store.is_nearly_full:
            return False
        if self._tiers.keeps(live):
            return True
        live.is_saved = False  # RAM may have given up part of it since
        self._tiers.save_ahead(live)
        return self._tiers.keeps(live)

    def _drop_until_free(self, num_cells: int, kept: Sequence[Live | None] = ()) -> None:
        while self._memory.free_cells < num_cells and self.drop_one_idle(kept):
            pass
