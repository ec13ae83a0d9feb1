"""Kills a process that writes to the shared store, at random moments, and looks at what it has left each time.

    python -m tests.store.kill_loop 100

All that it had said to be stored is found and sound; the index names nothing that is not there; what was put and not
told to the index is found when the two are compared.
"""

import random
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from leftoff.blobs.entries import Entry
from leftoff.store.collector import Collector
from leftoff.store.link import Link
from leftoff.store.medium import open_store
from leftoff.store.objects import ObjectName
from leftoff.store.prober import Prober
from leftoff.store.tools import verify_group
from tests.disk.stores import ARENA, FINGERPRINT, page, path_of, snapshot
from tests.patience import PATIENCE_S
from tests.store.parts import redis

_LONGEST_LIFE_S = 0.3
_NUM_TOKENS = 600


def main(num_kills: int, seed: int = 0) -> int:
    """Returns how many blobs were acknowledged in all."""
    rng, acknowledged = random.Random(seed), list[str]()
    with redis() as index, tempfile.TemporaryDirectory() as folder:
        for number in range(num_kills):
            acknowledged += _killed(Path(folder), index.url, 1000 * seed + number, rng.uniform(0, _LONGEST_LIFE_S))
        with closing(Link(f"file://{folder}/store", index.url, FINGERPRINT)) as link:
            findings = link.call(verify_group(link, FINGERPRINT, fix=False)).result()
            known = link.call(link.index.names()).result()
            assert not findings.faults, findings.faults
            missing = {*acknowledged} - {*known}
            assert not missing, f"{len(missing)} blobs were said to be stored, and are not known"
            num_added = link.call(Collector(link, 1 << 40).rebuild()).result()
            assert len(known) + num_added == findings.num_blobs
    print(f"{num_kills} kills, {len(acknowledged)} blobs acknowledged, {num_added} put and not told: all sound")
    return len(acknowledged)


def _killed(folder: Path, index_url: str, seed: int, life_s: float) -> list[str]:
    """The objects that a process had said to be stored before it was killed."""
    command = [sys.executable, "-m", "tests.store.kill_loop", "writes", f"file://{folder}/store", index_url, str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(life_s)
        process.kill()
        lines = [first, *process.stdout]
    return [line.strip() for line in lines if line.endswith("\n")]


def _write(store_url: str, index_url: str, seed: int) -> None:
    """Stores paths of two pages and a snapshot until it is killed, and prints the object of each that is stored."""
    link = Link(store_url, index_url, FINGERPRINT)
    blobs = open_store(link, Prober(link), FINGERPRINT, ARENA, queue_bytes=1 << 26)
    for number in range(1_000_000):
        tokens = path_of(_NUM_TOKENS, seed=1_000_000 * seed + number)
        items = (page(0, 256, 20_000), page(256, _NUM_TOKENS, 20_000), snapshot(_NUM_TOKENS, 50_000))
        records = [blobs.put(item, "", tokens) for item in items]
        assert blobs.flush(PATIENCE_S)
        for record in records:
            assert isinstance(record, Entry)
            print(ObjectName.of(record.blob), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "writes":
        _write(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main(int(sys.argv[1]))
