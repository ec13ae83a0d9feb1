"""The hash-chain memory of the tests with real bytes, so that its pages and snapshots can be sealed and stored."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from leftoff.engine.memory.arena import Arena, Buffer, view_of
from leftoff.engine.memory.base import Bytes, MemoryKind, Page, PagePart, Share, Snapshot, WindowPage
from leftoff.picture_tokens import Pictures
from tests.cache.chain import ChainBytes, RoomyChainMemory

BYTES_PER_TOKEN = 8


class BoxMemory(RoomyChainMemory):
    """Implements `engine.base.Memory`, with attention pages and snapshots."""

    fingerprint = "ab" * 32

    def __init__(self, num_sequences: int) -> None:
        super().__init__(
            MemoryKind.HYBRID, num_sequences, bytes_per_token=BYTES_PER_TOKEN, fixed_snapshot_bytes=BYTES_PER_TOKEN
        )
        self.arena = Arena()

    def _page(self, seq: int, start: int, end: int) -> Page:
        page = super()._page(seq, start, end)
        return replace(page, data=self._packed(page.data))

    def save_snapshot(self, seq: int, known: Sequence[WindowPage] = ()) -> Snapshot:
        saved = super().save_snapshot(seq, known)
        return replace(saved, data=self._packed(saved.data, 1))

    def restore(
        self,
        seq: int,
        length: int,
        *,
        share: Share | None = None,
        pages: Sequence[PagePart] = (),
        snapshot: Snapshot | None = None,
        pictures: Pictures = (),  # noqa: ARG002
    ) -> None:
        unpacked = [replace(part, page=replace(part.page, data=_unpacked(part.page.data))) for part in pages]
        if snapshot is not None:
            (rest,) = _unpacked(snapshot.data).content
            snapshot = replace(snapshot, data=ChainBytes(0, (rest, *[0] * snapshot.position)))
        super().restore(seq, length, share=share, pages=unpacked, snapshot=snapshot)

    def _packed(self, data: Bytes, most: int | None = None) -> Buffer:
        assert isinstance(data, ChainBytes)
        content = np.array(data.content[:most], np.int64).view(np.uint8)
        buffer = self.arena.take(content.nbytes)
        buffer.view[:] = content
        return buffer


def _unpacked(data: Bytes) -> ChainBytes:
    content = tuple(np.frombuffer(view_of(data).tobytes(), np.int64).tolist())
    return ChainBytes(data.nbytes, content)
