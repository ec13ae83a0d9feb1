"""A store is checked while servers run: what they remove meanwhile is no fault."""

from collections.abc import AsyncIterator

import pytest

from leftoff.store import tools
from leftoff.store.objects import Listed, ObjectName, Objects
from leftoff.store.tools import verify_group
from tests.disk.stores import FINGERPRINT, path_of
from tests.store.conftest import Opened
from tests.store.test_medium import ITEMS, stored


def test_what_is_removed_while_it_is_checked_is_no_fault(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = opened()
    stored(blobs, path_of(400, seed=600))
    link, blobs_of = blobs.medium.link, tools.blobs_of

    async def listed(objects: Objects, group: str) -> AsyncIterator[Listed]:
        (first, *_) = map(ObjectName.parse, sorted(await link.index.names()))
        assert first is not None
        await link.remove([first])
        async for each in blobs_of(objects, group):
            yield each

    monkeypatch.setattr(tools, "blobs_of", listed)
    findings = link.call(verify_group(link, FINGERPRINT, fix=False)).result()
    assert (findings.num_blobs, findings.faults) == (len(ITEMS) - 1, [])
