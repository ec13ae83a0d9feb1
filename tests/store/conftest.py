"""A Redis for each file of tests, and stores in folders of their own."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from leftoff.blobs.store import MediumBlobStore
from leftoff.store.link import Link
from leftoff.store.medium import ObjectMedium, open_store
from leftoff.store.prober import Prober
from tests.disk.stores import ARENA, FINGERPRINT
from tests.patience import PATIENCE_S
from tests.store.parts import Redis, redis

SharedBlobs = MediumBlobStore[ObjectMedium]
Opened = Callable[..., SharedBlobs]


@pytest.fixture(scope="module")
def index() -> Iterator[Redis]:
    with redis() as part:
        yield part


@pytest.fixture
def opened(index: Redis, tmp_path: Path) -> Iterator[Opened]:
    """Opens the store once more, as another machine would."""
    with ExitStack() as closing:

        def open_(fingerprint: str = FINGERPRINT, url: str = "", index_url: str = index.url) -> SharedBlobs:
            link = Link(url or f"file://{tmp_path}/store", index_url, fingerprint)
            closing.callback(link.close)
            prober = Prober(link)
            link.start(prober.run())
            blobs = open_store(link, prober, fingerprint, ARENA, queue_bytes=1 << 20)
            closing.callback(blobs.close, PATIENCE_S)
            return blobs

        yield open_
