"""What a process has said to be stored is stored, however it ends."""

from leftoff.cache.blob_store import Record
from leftoff.engine.memory.base import Page
from tests.disk.stores import path_of
from tests.patience import until
from tests.store import kill_loop
from tests.store.conftest import Opened
from tests.store.test_medium import found, stored


def test_nothing_acknowledged_is_lost_when_the_writer_is_killed() -> None:
    assert kill_loop.main(2) > 0


def test_what_cannot_be_sealed_is_given_up_and_the_next_is_stored(opened: Opened) -> None:
    blobs = opened("05" * 32)
    broken = Page(0, 100, Record("no bytes", 5000, blobs))  # nothing that could be read
    assert blobs.put(broken, "", path_of(100, seed=400)) is not None
    stored(blobs, path_of(400, seed=401))
    assert found(blobs, path_of(400, seed=401)) is not None
    assert until(lambda: len(blobs.take_lost()) == 1)
    assert blobs.num_waiting == 0
