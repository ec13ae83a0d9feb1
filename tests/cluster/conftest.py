"""A Redis for each file of tests, and looks that are further apart."""

from collections.abc import Iterator

import pytest

from tests import patience
from tests.store.parts import Redis, redis


@pytest.fixture(scope="package", autouse=True)
def _rare_looks() -> Iterator[None]:
    """Who waits for what a router knows asks it over HTTP, and whoever it waits for tells it once a second."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(patience, "POLL_S", 0.05)
        yield


@pytest.fixture(scope="module")
def index() -> Iterator[Redis]:
    with redis() as part:
        yield part
