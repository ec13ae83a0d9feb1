"""A store that an earlier leftoff wrote is found and loaded, with its index or from the objects alone."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from leftoff.cache.blob_store import Record, Wanted
from leftoff.store.collector import Collector
from leftoff.store.link import Link
from leftoff.store.medium import open_store
from leftoff.store.prober import Prober
from leftoff.store.replies import open_index_replies
from leftoff.store.tools import verify_group
from tests.disk.stores import ARENA, FINGERPRINT, WAIT_S, content
from tests.disk.written_before import PATHS, REPLIES, WINDOW_TOKENS
from tests.store.parts import redis
from tests.store.written_before import restore_index, unpacked


@pytest.fixture(params=["with its index", "from the objects alone"])
def link(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Link]:
    with redis() as index:
        url = unpacked(tmp_path)
        if request.param == "with its index":
            restore_index(tmp_path, index.url)
        with closing(Link(url, index.url, FINGERPRINT)) as link:
            num_added = link.call(Collector(link, 1 << 40).rebuild()).result()
            num_blobs = len([*(tmp_path / "store").glob("ab*/*/*/*")])
            assert num_added == (0 if request.param == "with its index" else num_blobs)
            yield link


def test_everything_is_found_and_comes_back_bit_for_bit(link: Link) -> None:
    blobs = open_store(*(link, Prober(link), FINGERPRINT, ARENA), queue_bytes=1 << 20, window_tokens=WINDOW_TOKENS)
    for path in PATHS:
        search = blobs.search(Wanted(path.namespace, path.tokens, 0))
        stored = search.result(WAIT_S)
        assert stored is not None
        records = [item.data for item in stored.items if isinstance(item.data, Record)]
        found = {content(future.result(WAIT_S)) for future in blobs.get(records)}
        assert found >= {content(item) for item in path.items()}
    blobs.close(WAIT_S)
    assert link.call(verify_group(link, FINGERPRINT, fix=False)).result().faults == []


def test_replies_are_found_in_an_index_that_was_kept(tmp_path: Path) -> None:
    with redis() as index:
        url = unpacked(tmp_path)
        restore_index(tmp_path, index.url)
        with closing(Link(url, index.url, FINGERPRINT)) as link:
            replies = open_index_replies(link, FINGERPRINT)
            assert replies.get([*REPLIES]) == {key: value for key, (_, value) in REPLIES.items()}
