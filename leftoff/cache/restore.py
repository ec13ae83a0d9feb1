"""Carries out plans: moves states into the engine, and makes room for them there. What has to go is saved before."""

import time
from collections.abc import Sequence
from enum import Enum

from leftoff.cache.costs import Costs
from leftoff.cache.plan import Plan
from leftoff.cache.sequences import EngineSequence, SequenceTable
from leftoff.cache.tiers import Tiers
from leftoff.engine.errors import NoRoomError
from leftoff.engine.memory.base import Memory
from leftoff.picture_tokens import Pictures
from leftoff.types import Prompt

_MOST_OF_A_SEQUENCE = 0.9  # shared with the prompt: it is cut in place, and what it loses is soon back from RAM


class Stay(Enum):
    """Whether idle sequences that RAM holds as well stay in the engine beside a request that runs alone."""

    NEVER = "never"  # so that the request's logits do not depend, to the last bit, on what ran before
    ALWAYS = "always"
    IF_FASTER = "if faster"  # while loading one again would take longer than it slows the request down


class Restorer:
    """Chooses the sequence to restore into and those to drop. What is restored is the plan's choice."""

    def __init__(self, memory: Memory, costs: Costs, sequences: SequenceTable, tiers: Tiers, stay: Stay) -> None:
        self._memory = memory
        self._stay = stay
        self._costs = costs
        self._sequences = sequences
        self._tiers = tiers

    def restore(self, prompt: Prompt, plan: Plan, namespace: str) -> EngineSequence:
        """A running sequence that ends where the prompt's prefill goes on. There must be an idle sequence."""
        others = self._sequences.parked([plan.sequence]) if not self._sequences.num_busy else []
        self._clear_engine(others, plan)
        target = self._target(prompt, plan)
        prefix = prompt.tokens[: plan.resume]
        if target is not plan.sequence or not plan.goes_on:
            if not target.is_empty:
                self._tiers.swap(target, prefix, namespace, plan.shared if target is plan.sequence else 0)
            self._load(target, plan, [span for span in prompt.pictures if span.end <= plan.resume])
        target.start(prefix, namespace, None if plan.goes_on else plan.point)
        return target

    def fits(self, plan: Plan) -> bool:
        """The engine has cells for the plan's pages beside its sequence and those that run.

        A long sequence that shares little with the prompt may be in the way of what is to be loaded.
        """
        if plan.sequence is None or not plan.pages:
            return True
        busy = sum(other.length for other in self._sequences if other.is_busy and other is not plan.sequence)
        return plan.sequence.length + busy + plan.num_page_tokens <= self._memory.num_cells

    def make_cells(self, num_tokens: int) -> None:
        """Frees cells for tokens to be decoded, by dropping idle sequences."""
        self._drop_until_free(num_tokens)
        free = self._memory.free_cells
        if free < num_tokens:
            raise NoRoomError(f"no room for {num_tokens} more tokens: {free} of {self._memory.num_cells} are free")

    def drop_one_idle(self, kept: Sequence[EngineSequence | None] = ()) -> bool:
        """Saves and drops the idle sequence that is missed least. False if there is none but `kept`."""
        victim = self._sequences.next_to_drop(kept)
        if victim is None:
            return False
        self._save_and_drop(victim)
        return True

    def forget(self, sequence: EngineSequence) -> None:
        """Drops a sequence without saving it."""
        self._memory.drop(sequence.seq)
        sequence.clear()

    def empty_engine(self, last: EngineSequence, length: int) -> None:
        """Saves the first `length` tokens of the only sequence, as far as the budgets allow, and clears the engine."""
        last.truncate(length)
        self._save_and_drop(last)
        self._memory.clear()

    def _save_and_drop(self, sequence: EngineSequence) -> None:
        self._tiers.save(sequence)
        self.forget(sequence)

    def _target(self, prompt: Prompt, plan: Plan) -> EngineSequence:
        source = plan.sequence
        if source is not None and not source.is_busy and (plan.goes_on or self._is_cut_in_place(source, plan)):
            return source
        if (left_behind := self._left_behind(prompt, plan)) is not None:
            return left_behind
        return self._sequences.to_overwrite(self._price_ms)

    def _price_ms(self, sequence: EngineSequence) -> float:
        """How long it takes to save what RAM lacks of a sequence, and to load all of it again later."""
        nbytes = self._memory.page_bytes(sequence.length) + self._memory.snapshot_bytes(sequence.length)
        return self._costs.save_ms(self._tiers.lacking_bytes(sequence)) + self._costs.load_ms(nbytes)

    def _left_behind(self, prompt: Prompt, plan: Plan) -> EngineSequence | None:
        """The idle sequence of the same conversation, which this prompt leaves for another branch.

        The conversation goes on here, so that its old end is less likely to be asked for than those of others. Unless a
        sequence is empty, that is the one to overwrite. Conversations that share only their header are others.
        """
        if any(sequence.is_empty for sequence in self._sequences.idle):
            return None
        begins_alike = prompt.header_end or prompt.length // 2
        shared = plan.lookup.shared
        related = [each for each in shared if not each.is_busy and shared[each] > begins_alike]
        return max(related, key=lambda each: (shared[each], each.last_used), default=None)

    def _is_cut_in_place(self, source: EngineSequence, plan: Plan) -> bool:
        """Whether the source is cut back: alone in the engine, so that it stays at the first cell, or losing little."""
        loses_little = self._stay is Stay.IF_FASTER and plan.shared >= _MOST_OF_A_SEQUENCE * source.length
        is_cut = loses_little or (self._sequences.is_alone(source) and not self._is_faster_kept(source, plan))
        return is_cut and self._copy_to_ram(source, plan.shared)

    def _load(self, target: EngineSequence, plan: Plan, pictures: Pictures) -> None:
        began = time.perf_counter()
        try:
            if target is not plan.sequence and not target.is_empty:
                self._memory.drop(target.seq)
            # room is made before: a restore in place that finds none leaves nothing to share from
            self._drop_until_free(plan.num_page_tokens, (target, plan.sequence))
            self._memory.restore(
                target.seq,
                plan.resume,
                share=plan.share,
                pages=plan.pages,
                snapshot=plan.snapshot,
                pictures=pictures,
            )
        except BaseException:
            target.truncate(self._memory.length(target.seq))
            raise
        self._costs.saw_load(plan.loaded_bytes, 1000 * (time.perf_counter() - began))

    def _clear_engine(self, others: Sequence[EngineSequence], plan: Plan) -> None:
        """Before a request that runs alone, idle sequences leave the engine, all but the one it resumes from.

        So the request stands at the first cell with nothing behind it, and its logits do not depend on what ran before.
        It is faster too: attention passes over the cells of all sequences. While others run nothing leaves: to close
        the holes, running sequences would have to be moved.
        """
        for sequence in others:
            if not self._is_faster_kept(sequence, plan) and self._copy_to_ram(sequence):
                self._save_and_drop(sequence)

    def _is_faster_kept(self, sequence: EngineSequence, plan: Plan) -> bool:
        """Saving and loading it would take longer than the plan's request is slowed by the cells they do not share."""
        if self._stay is not Stay.IF_FASTER:
            return False
        length, shared = sequence.length, plan.lookup.shared.get(sequence, 0)
        load_ms = self._costs.load_ms(self._memory.page_bytes(length) + self._memory.snapshot_bytes(length))
        num_tokens = int(plan.lookup.tokens.size) - plan.resume
        slower_ms = self._costs.neighbour_ms(length - shared, num_tokens)
        lacking = self._tiers.lacking_bytes(sequence)
        save_ms = self._costs.save_ms(lacking) if lacking else 0.0
        return save_ms + load_ms * self._sequences.chance_of_return(sequence) > slower_ms

    def _copy_to_ram(self, sequence: EngineSequence, kept: int = 0) -> bool:
        """Writes to RAM what it lacks of an idle sequence. True if it may leave the engine, but for `kept` tokens.

        Where RAM is short the sequence stays: prefilling it again would cost more than it gains.
        """
        if not self._memory.kind.has_pages or self._stay is Stay.ALWAYS or self._tiers.ram.budget.is_nearly_full:
            return False
        if self._tiers.lacking_bytes(sequence, kept):  # also if it was saved: RAM may have evicted part of it since
            self._tiers.write_behind(sequence, kept=kept)
        return not self._tiers.lacking_bytes(sequence, kept)

    def _drop_until_free(self, num_cells: int, kept: Sequence[EngineSequence | None] = ()) -> None:
        while self._memory.free_cells < num_cells and self.drop_one_idle(kept):
            pass
