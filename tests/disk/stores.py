"""Items with bytes of their own, paths of tokens, and stores in a folder: what the disk tests are told in."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from blake3 import blake3

from leftoff.blobs.store import MediumBlobStore
from leftoff.cache.blob_store import Item, Record, StoredPath
from leftoff.disk.medium import QUEUE_BYTES, FolderMedium, open_folder
from leftoff.engine.memory.arena import Arena, Buffer, view_of
from leftoff.engine.memory.base import Page, Snapshot
from leftoff.types import Tokens
from tests.patience import PATIENCE_S

FINGERPRINT = "ab" * 32
DiskStore = MediumBlobStore[FolderMedium]
ARENA = Arena()
WAIT_S = PATIENCE_S


def path_of(num_tokens: int, seed: int = 0) -> Tokens:
    return np.random.default_rng(seed).integers(0, 1000, num_tokens).astype(np.int32)


def page(start: int, end: int, nbytes: int = 5000, seed: int = 0) -> Page:
    return Page(start, end, filled(nbytes, f"page {start} {end} {seed}"))


def snapshot(position: int, nbytes: int = 5000, seed: int = 0) -> Snapshot:
    return Snapshot(position, filled(nbytes, f"snapshot {position} {seed}"))


def filled(nbytes: int, text: str) -> Buffer:
    buffer = ARENA.take(nbytes)
    buffer.view[:] = np.frombuffer(blake3(text.encode()).digest(nbytes), np.uint8)
    return buffer


@contextmanager
def store_in(root: Path, queue_bytes: int = QUEUE_BYTES) -> Iterator[DiskStore]:
    store = open_folder(root, FINGERPRINT, ARENA, queue_bytes=queue_bytes, reserve_bytes=0, retry_s=0.05)
    try:
        yield store
    finally:
        store.close(WAIT_S)


def put(store: DiskStore, item: Item, tokens: Tokens, namespace: str = "") -> Record:
    record = store.put(item, namespace, tokens)
    assert record is not None
    return record


def written(store: DiskStore, items: Sequence[Item], tokens: Tokens, namespace: str = "") -> list[Record]:
    records = [put(store, item, tokens, namespace) for item in items]
    assert store.flush(WAIT_S)
    assert store.take_lost() == []
    return records


def read(store: DiskStore, record: Record) -> Item:
    return store.get([record])[0].result(WAIT_S)


def content(item: Item) -> tuple[object, ...]:
    """All there is to compare."""
    where = (item.start, item.end) if isinstance(item, Page) else (item.position,)
    return (*where, view_of(item.data).tobytes())


def record_of(item: Item) -> Record:
    assert isinstance(item.data, Record)
    return item.data


def recalled(store: DiskStore) -> dict[str, tuple[StoredPath, Item, float]]:
    """Each item that was left, by its name, with the path it came with and its age."""
    found: dict[str, tuple[StoredPath, Item, float]] = {}
    for kept in store.stored_paths():
        for item, age_s in zip(kept.items, kept.ages_s, strict=True):
            name = record_of(item).name
            assert name not in found, "each item comes once"
            found[name] = (kept, item, age_s)
    return found


def blob_files(root: Path) -> list[Path]:
    return sorted(path for path in root.glob("v1/*/blobs/*/*") if path.is_file())
