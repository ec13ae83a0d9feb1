"""How fast the disk tier writes and reads large blobs, beside plain files in the same folder.

Pages and snapshots of the size that an 8 B hybrid has, round by round; figures are medians. Reading is from the file
cache of the system, as after a restart of the server alone: what it shows is whether checksums keep up with a disk.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from leftoff.cache.blob_store import Item, Record
from leftoff.disk.medium import open_folder
from leftoff.engine.memory.arena import Arena, view_of
from leftoff.engine.memory.base import Page, Snapshot

_FINGERPRINT = "00" * 32
_PAGE_TOKENS, _PAGE_BYTES, _SNAPSHOT_BYTES = 256, 8 << 20, 52 << 20
_PATIENCE_S = 600.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pages", type=int, default=48)
    parser.add_argument("--snapshots", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", help="on the disk to measure (default: that of temporary files)")
    args = parser.parse_args()
    arena = Arena()
    items = _items(arena, args.pages, args.snapshots)
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        rounds = [_round(Path(folder), arena, items) for _ in range(args.rounds)]
    _show(rounds, sum(item.nbytes for item in items))


def _items(arena: Arena, num_pages: int, num_snapshots: int) -> list[Item]:
    starts = range(0, num_pages * _PAGE_TOKENS, _PAGE_TOKENS)
    items: list[Item] = [Page(start, start + _PAGE_TOKENS, arena.take(_PAGE_BYTES)) for start in starts]
    items += [Snapshot(number + 1, arena.take(_SNAPSHOT_BYTES)) for number in range(num_snapshots)]
    noise = np.random.default_rng(0).integers(0, 256, _PAGE_BYTES, np.uint8)
    for item in items:
        view = view_of(item.data)
        view[:] = np.resize(noise, view.size)
    return items


def _round(folder: Path, arena: Arena, items: Sequence[Item]) -> dict[str, float]:
    """Milliseconds."""
    tokens = np.arange(len(items) * _PAGE_TOKENS, dtype=np.int32)
    times = {"plain files, synced": _ms(lambda: _write_plain(folder, items))}
    store = open_folder(folder, _FINGERPRINT, arena, queue_bytes=1 << 40, gives_way=False)
    records: list[Record] = []

    def write() -> None:
        records.extend(filter(None, [store.put(item, "", tokens) for item in items]))
        assert store.flush(_PATIENCE_S)

    times["the store, synced"] = _ms(write)
    times["the store, read"] = _ms(lambda: [future.result() for future in store.get(records)])
    for record in records:
        store.remove(record)
    store.close(_PATIENCE_S)
    return times


def _write_plain(folder: Path, items: Sequence[Item]) -> None:
    paths = [folder / f"plain-{number}" for number in range(len(items))]
    for item, path in zip(items, paths, strict=True):
        path.write_bytes(view_of(item.data).data)
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
        path.unlink()


def _ms(do: Callable[[], object]) -> float:
    began = time.perf_counter()
    do()
    return 1000 * (time.perf_counter() - began)


def _show(rounds: list[dict[str, float]], nbytes: int) -> None:
    table = Table("what", "GB/s", "against plain files")
    plain = statistics.median(one["plain files, synced"] for one in rounds)
    for name in rounds[0]:
        ms = statistics.median(one[name] for one in rounds)
        table.add_row(name, f"{nbytes / ms / 1e6:.2f}", f"{plain / ms:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
