"""A cache folder that an earlier leftoff wrote is opened, and everything in it is found and can be loaded."""

from pathlib import Path

import numpy as np
import pytest

from leftoff.cache.blob_tier import TierSettings
from leftoff.cache.cache import Cache
from leftoff.cache.costs import Costs
from leftoff.disk.headers import HeaderFiles
from leftoff.disk.reply_store import open_replies
from leftoff.disk.secret import SECRET_BYTES, folder_secret
from leftoff.disk.tools.catalog import Catalog
from leftoff.disk.tools.models import models
from leftoff.disk.tools.verify import verify_folder
from leftoff.engine.memory.base import MemoryKind
from leftoff.types import Prompt
from tests.cache.chain import ChainMemory
from tests.cache.trees import UNLIMITED
from tests.disk.stores import FINGERPRINT, content, read, recalled, record_of, store_in
from tests.disk.written_before import HEADERS, LABEL, PATHS, REPLIES, WrittenPath, unpacked
from tests.patience import PATIENCE_S

NUM_BLOBS = sum(len([*path.items()]) for path in PATHS)


def test_every_item_comes_back_bit_for_bit_on_its_path(tmp_path: Path) -> None:
    with store_in(unpacked(tmp_path)) as store:
        found = [*recalled(store).values()]
        kept = {(path.namespace, content(read(store, record_of(item)))) for path, item, _ in found}
        assert store.take_lost() == []
    assert kept == {(path.namespace, content(item)) for path in PATHS for item in path.items()}
    assert len(found) == NUM_BLOBS
    paths = {(path.namespace, path.tokens.tobytes()) for path, _, _ in found}
    assert paths == {(path.namespace, path.tokens.tobytes()) for path in PATHS}


@pytest.mark.parametrize("path", PATHS)
def test_a_prompt_resumes_where_the_path_ended(tmp_path: Path, path: WrittenPath) -> None:
    with store_in(unpacked(tmp_path)) as store:
        cache = Cache(
            ChainMemory(MemoryKind.WINDOW),
            num_slots=1,
            budget_bytes=UNLIMITED,
            tiers=[TierSettings(store, UNLIMITED)],
            costs=Costs(prefill_tokens_per_ms=0.01),
        )
        cache.check_integrity()
        length = int(path.tokens.size)
        plan = cache.plan(Prompt(np.append(path.tokens, np.int32(1))), path.namespace)
        assert plan.resume == length
        fetch = cache.fetch(Prompt(plan.lookup.tokens), path.namespace)
        assert fetch is not None
        assert fetch.lost() == []


def test_it_can_be_written_on(tmp_path: Path) -> None:
    root = unpacked(tmp_path)
    with store_in(root) as store:
        first = record_of(next(item for _, item, _ in recalled(store).values()))
        store.remove(first)
    with store_in(root) as store:
        assert recalled(store).keys().isdisjoint({first.name})


def test_the_tools_find_no_fault(tmp_path: Path) -> None:
    (usage,) = models(unpacked(tmp_path))
    assert (usage.label, usage.fingerprint, usage.num_blobs) == (LABEL, FINGERPRINT, NUM_BLOBS)
    assert verify_folder(usage.path).faults == []
    catalog = Catalog.of(usage.path)
    assert all(catalog.path_to(blob).is_whole for blob in catalog.blobs if blob.is_snapshot)
    assert sum(blob.hits for blob in catalog.blobs) == 3


def test_replies_headers_and_the_secret_are_read(tmp_path: Path) -> None:
    root = unpacked(tmp_path)
    replies = open_replies(models(root)[0].path, FINGERPRINT)
    assert replies is not None
    assert replies.get([*REPLIES]) == {key: value for key, (_, value) in REPLIES.items()}
    (removed,) = replies.remove(lambda namespace: namespace == "")
    removed.result(PATIENCE_S)
    assert {*replies.get([*REPLIES])} == {key for key, (namespace, _) in REPLIES.items() if namespace}
    replies.close()
    for owner, header in HEADERS.items():
        assert header in HeaderFiles(root).last(owner)
    assert folder_secret(root) == (root / "secret").read_bytes()
    assert len(folder_secret(root)) == SECRET_BYTES
