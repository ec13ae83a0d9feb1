"""Memory that is saved and loaded as one state: recurrent, and all architectures that `probe.py` finds opaque."""

from collections.abc import Mapping, Sequence

from leftoff.engine.errors import InputError
from leftoff.engine.memory.arena import Raw, view_of
from leftoff.engine.memory.base import MemoryKind, Page, PagePart, Share, Snapshot, Span, WindowPage
from leftoff.engine.memory.llama_memory import LlamaMemory


class WholeMemory(LlamaMemory):
    """A snapshot is the whole state of a sequence. There are no pages, and nothing is cut."""

    @property
    def free_cells(self) -> int:
        # a recurrent state has the same size after any number of tokens
        return self.num_cells if self.kind is MemoryKind.RECURRENT else self.num_cells - sum(self._lengths)

    def can_cut(self, seq: int, length: int) -> bool:
        return length in (0, self.length(seq))

    def page_bytes(self, num_tokens: int) -> int:  # noqa: ARG002
        return 0

    def save_pages(self, seq: int, spans: Sequence[Span]) -> list[Page]:
        if spans:
            raise InputError(f"{self.kind.value} memory has no pages: save a snapshot (asked: {spans} of {seq})")
        return []

    def save_snapshot(self, seq: int, known: Sequence[WindowPage] = ()) -> Snapshot:  # noqa: ARG002
        self._check_whole(seq)
        return Snapshot(self.length(seq), self._context.get_state(seq))

    def _reorder(self, num_tokens: Mapping[int, int]) -> None:
        """On the grid, reloads the state, so that its cells lie as for a request that resumes from a snapshot here.

        A recurrent state always lies the same. Opaque memory has one sequence at a time, so that all can be cleared.
        """
        if self.kind is MemoryKind.RECURRENT:
            self._context.line_up([*num_tokens])
            return
        for seq in num_tokens:
            if self._lengths[seq] and self._is_on_grid(seq):
                state = self._context.stage_state(seq).view
                self._context.clear(data=False)
                self._context.set_state(seq, state)

    def extend(self, num_tokens: Mapping[int, int]) -> None:
        for seq, num in num_tokens.items():
            self._lengths[seq] += num

    def rewind(self, seq: int) -> None:
        was_empty = self.length(seq) == 0
        self.drop(seq)
        if not was_empty:  # the caller must not decode on as if its tokens were still there
            self._spoiled.add(seq)

    @property
    def can_draft(self) -> bool:
        return self.kind is MemoryKind.RECURRENT

    def _take_back(self, seq: int, length: int) -> int:
        held_length = self._held_length
        assert held_length is not None, f"sequence {seq} cannot be cut back to {length}"
        self._drop(seq)
        self._context.return_rest(seq, self.position(seq, held_length))
        self._lengths[seq] = held_length
        return held_length

    def _restore(
        self, seq: int, length: int, share: Share | None, pages: Sequence[PagePart], snapshot: Snapshot | None
    ) -> None:
        if pages:
            raise InputError(f"{self.kind.value} memory has no pages")
        if snapshot is None and share is not None and share.seq != seq and self.kind is MemoryKind.RECURRENT:
            self._drop(seq)
            self._context.copy(share.seq, seq)  # llama.cpp copies the state when one of them decodes
        elif snapshot is not None or share is None or share.seq != seq or length == 0:
            state = self._state_to_load(share, snapshot)
            self._drop(seq)
            if state is not None:
                self._check_room(length)
                self._context.load_state(seq, state)
        self._lengths[seq] = length

    def _state_to_load(self, share: Share | None, snapshot: Snapshot | None) -> Raw | None:
        if snapshot is not None:
            return view_of(snapshot.data)
        if share is not None and share.length:
            return self._context.get_state(share.seq).view
        return None

    def _drop(self, seq: int) -> None:
        self._context.remove(seq)
        self._lengths[seq] = 0
