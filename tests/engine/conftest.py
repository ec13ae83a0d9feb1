"""Engines on tiny models of every architecture, one at a time."""

from collections.abc import Iterator

import pytest

from leftoff.engine.context import ContextSettings
from leftoff.engine.engine import LlamaEngine
from tests.factory import model_path

# One thread: the tests themselves run in parallel, and a wrong state shows on one as well as on many.
SETTINGS = ContextSettings(num_cells=4096, num_sequences=5, threads=1)


@pytest.fixture(scope="module")
def engine(request: pytest.FixtureRequest) -> Iterator[LlamaEngine]:
    """The engine of one architecture; a test names it by indirect parametrisation."""
    with LlamaEngine.open(model_path(request.param), SETTINGS) as engine:
        yield engine


@pytest.fixture(autouse=True)
def _empty_sequences(request: pytest.FixtureRequest) -> None:
    """Every test begins with an engine that holds nothing."""
    if "engine" in request.fixturenames:
        engine: LlamaEngine = request.getfixturevalue("engine")
        for seq in range(engine.memory.num_sequences):
            engine.memory.drop(seq)
