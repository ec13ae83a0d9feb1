"""Brings states into the engine and makes room for them there. What goes is saved before."""

import time
from collections.abc import Sequence

from leftoff.cache.cargo import Cargo
from leftoff.cache.costs import Costs
from leftoff.cache.plan import Plan
from leftoff.cache.sequences import EngineSequence, SequenceTable
from leftoff.cache.tiers import Tiers
from leftoff.engine.errors import NoRoomError
from leftoff.engine.memory.base import Memory, MemoryKind
from leftoff.types import Prompt


class Restorer:
    """Carries out what was planned. Chooses nothing but what has to make way."""

    def __init__(self, memory: Memory, costs: Costs, sequences: SequenceTable, tiers: Tiers) -> None:
        self._memory = memory
        self._costs = costs
        self._sequences = sequences
        self._tiers = tiers

    def carry_out(self, prompt: Prompt, plan: Plan, cargo: Cargo, namespace: str) -> EngineSequence:
        """A slot that stands where the prompt goes on. There must be an idle one."""
        if not any(sequence.is_busy for sequence in self._sequences):
            self._clear_the_way(plan.sequence)
        target = self._target(plan)
        target.is_busy = True
        try:
            self._move(target, prompt, plan, cargo, namespace)
        except BaseException:
            target.is_busy, target.length = False, self._memory.length(target.seq)
            raise
        return target

    def _move(self, target: EngineSequence, prompt: Prompt, plan: Plan, cargo: Cargo, namespace: str) -> None:
        if plan.sequence is None or plan.sequence is not target or not plan.goes_on:
            if not target.is_empty:
                self._tiers.swap(target, prompt.tokens[: plan.resume], namespace)
            self._set_aside(target, plan)
            self._restore(target, plan, cargo)
        target.replace(prompt.tokens[: plan.resume], namespace)
        target.is_doubled = True
        if not plan.goes_on:
            self._tiers.leave_behind(target, plan.point)

    def make_cells(self, num_tokens: int) -> None:
        """Frees cells for tokens to be decoded, at the cost of parked states and idle slots."""
        self._drop_until_free(num_tokens)
        free = self._memory.free_cells
        if free < num_tokens:
            raise NoRoomError(f"no room for {num_tokens} more tokens: {free} of {self._memory.num_cells} are free")

    def drop_one_idle(self, kept: Sequence[EngineSequence | None] = ()) -> bool:
        """Drops what is missed least of the idle sequences, after saving it. False if there is none but `kept`."""
        victim = self._sequences.droppable(kept)
        if victim is not None:
            self.drop(victim)
        return victim is not None

    def fits_beside(self, sequence: EngineSequence, cargo: Cargo) -> bool:
        """A long sequence that shares little is in the way of what is to be loaded. Nothing is lost if it is saved."""
        needed = sum(part.num_tokens for part in cargo.pages)
        if not needed:
            return True
        busy = sum(other.length for other in self._sequences if other.is_busy and other is not sequence)
        fits = sequence.length + busy + needed <= self._memory.num_cells
        if not fits and not sequence.is_busy:
            self._tiers.save(sequence)
        return fits

    def drop(self, sequence: EngineSequence) -> None:
        self._tiers.save(sequence)
        self.forget(sequence)

    def leave(self, sequence: EngineSequence, length: int) -> None:
        """Keeps the first `length` tokens of a sequence, as far as the budgets allow, and empties the engine."""
        sequence.length, sequence.is_saved = length, False
        self._tiers.save(sequence)
        self.forget(sequence)
        self._memory.clear()

    def forget(self, sequence: EngineSequence) -> None:
        """Drops it without keeping anything."""
        self._tiers.leave_behind(sequence, None)
        self._memory.drop(sequence.seq)
        sequence.length, sequence.is_saved, sequence.is_doubled = 0, True, False

    def _target(self, plan: Plan) -> EngineSequence:
        if plan.sequence is not None and plan.sequence.is_slot and not plan.sequence.is_busy:
            others = [
                sequence for sequence in self._sequences if sequence is not plan.sequence and not sequence.is_empty
            ]
            # whoever is alone in the engine is cut back in place, and so stays at the first cell
            if plan.goes_on or (not others and self._save_elsewhere(plan.sequence)):
                return plan.sequence
        if self._tiers.ram.budget.is_nearly_full:
            # a slot holds a long sequence as easily as a short one, and RAM does not: the short one goes there
            return self._sequences.least_missed(self._tiers.lacking_bytes)
        return self._sequences.least_missed()

    def _set_aside(self, sequence: EngineSequence, plan: Plan) -> None:
        """Parks what is about to be overwritten, if a sequence is spare that is not needed right now."""
        if plan.is_cut_back and self._memory.kind is MemoryKind.WINDOW:
            return  # parking may overwrite what the window still remembers
        spare = self._sequences.spare_to_use(besides=plan.sequence)
        if spare is not None and not sequence.is_empty and self._memory.is_whole(sequence.seq):
            self._memory.fork(sequence.seq, spare.seq, self._memory.length(sequence.seq))
            spare.replace(sequence.tokens, sequence.namespace)
            spare.last_used = sequence.last_used

    def _restore(self, target: EngineSequence, plan: Plan, cargo: Cargo) -> None:
        began = time.perf_counter()
        if target is not plan.sequence:
            self._memory.drop(target.seq)
        # Room is made before: a restore in place that finds none leaves nothing to share from.
        self._drop_until_free(sum(part.num_tokens for part in cargo.pages), (target, plan.sequence))
        self._memory.restore(target.seq, plan.resume, share=plan.share, pages=cargo.pages, snapshot=cargo.snapshot)
        self._costs.saw_load(cargo.nbytes, 1000 * (time.perf_counter() - began))

    def _clear_the_way(self, source: EngineSequence | None) -> None:
        """Idle sequences leave the engine before a request that runs alone, all but the one it resumes from.

        So it stands at the first cell with nothing behind it, and its logits do not depend on what ran before. It is
        faster too: attention passes over the cells of all sequences. Beside others that run nobody leaves: the holes
        would have to be closed by moving those that run.
        """
        for sequence in self._sequences.idle_slots:
            if sequence is not source and not sequence.is_empty and self._save_elsewhere(sequence):
                self.drop(sequence)

    def _save_elsewhere(self, sequence: EngineSequence) -> bool:
        """Puts into RAM what it lacks of an idle sequence. True if the sequence may leave the engine now.

        Where RAM is short it stays: reading it again would cost more than the milliseconds of coming back. With spare
        sequences the user has chosen to pay in speed for them.
        """
        if not self._memory.kind.has_pages or self._sequences.spares or self._tiers.ram.budget.is_nearly_full:
            return False
        if self._tiers.keeps(sequence):
            return True
        sequence.is_saved = False  # RAM may have given up part of it since
        self._tiers.save_ahead(sequence)
        return self._tiers.keeps(sequence)

    def _drop_until_free(self, num_cells: int, kept: Sequence[EngineSequence | None] = ()) -> None:
        while self._memory.free_cells < num_cells and self.drop_one_idle(kept):
            pass
