"""One server of the embedded model for all tests here that need no other settings: to open it takes half a second.

Not for the whole session: tests of hosts look at which threads are left.
"""

from collections.abc import Iterator

import pytest

from leftoff.host.build import open_host
from leftoff.host.host import ModelHost
from leftoff.hub.reference import default_model
from leftoff.server.server import serving
from tests.server.fixtures import settings


@pytest.fixture(scope="package")
def embedded_host() -> Iterator[ModelHost]:
    with open_host(settings(model=str(default_model()))) as host:
        yield host


@pytest.fixture(scope="package")
def embedded_url(embedded_host: ModelHost) -> Iterator[str]:
    with serving(embedded_host) as url:
        yield url
