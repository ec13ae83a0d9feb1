"""Requests made up from the server's own description: whatever comes, it answers, and refuses in the described shape.

LEFTOFF_SCHEMATHESIS sets how many requests of each kind an operation gets.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import response_schema_conformance

from leftoff.host.build import open_host
from leftoff.server.server import serving
from tests.patience import PATIENCE_S
from tests.server.fixtures import settings as server_settings

ENDLESS = ("/cache/events",)  # a stream that ends when its reader leaves
NUM_REQUESTS = int(os.environ.get("LEFTOFF_SCHEMATHESIS", "3"))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A small context bounds every reply."""
    with open_host(server_settings(ctx=128, max_tokens=8, ram=16)) as host, serving(host) as url:
        yield url


@pytest.mark.timeout(900 + 100 * NUM_REQUESTS)
@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE], ids=["as described", "otherwise"])
def test_every_request_gets_an_answer(url: str, mode: GenerationMode) -> None:
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    for found in schema.get_all_operations():
        assert isinstance(found, Ok), "the description is in order"
        operation = found.ok()
        if mode is GenerationMode.NEGATIVE and not operation.body:
            continue  # nothing about it can be wrong
        if operation.path in ENDLESS:
            continue

        @settings(
            max_examples=NUM_REQUESTS,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=[*HealthCheck],
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def is_answered(case: schemathesis.Case[Any]) -> None:
            case.call_and_validate(checks=[not_a_server_error, response_schema_conformance], timeout=PATIENCE_S)

        is_answered()
