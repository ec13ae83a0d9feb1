"""A Redis for each file of tests."""

from collections.abc import Iterator

import pytest

from tests.store.parts import Redis, redis


@pytest.fixture(scope="module")
def index() -> Iterator[Redis]:
    with redis() as part:
        yield part
