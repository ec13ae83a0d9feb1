"""The grammars of one tiny model, and a way to try texts on them."""

from collections.abc import Iterator

import pytest

from leftoff.engine.model import Model
from leftoff.grammar.compile import Grammars
from tests.factory import model_path


@pytest.fixture(scope="session")
def grammars() -> Iterator[Grammars]:
    model = Model(model_path("qwen35"))
    grammars = Grammars(model.vocabulary)
    yield grammars
    grammars.close()
    model.close()
