"""A head guesses from what was decoded, however that came: a next-token layer and an EAGLE-3 head alike."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from leftoff.engine.eagle import EagleContext
from leftoff.engine.engine import LlamaEngine, Work
from leftoff.engine.mtp import MtpContext
from tests.engine.guessing import (
    EAGLE_SETTINGS,
    HEAD_DEVICES,
    MTP_SETTINGS,
    guess,
    restore_and_drop,
    with_head,
    with_layer,
    words,
)
from tests.engine.scenario import read
from tests.factory import MTP, model_path
from tests.factory.heads import head_path

LENGTH = 203


@pytest.fixture(scope="module", params=["mtp", "eagle"])
def engine(request: pytest.FixtureRequest) -> Iterator[LlamaEngine]:
    with with_layer() if request.param == "mtp" else with_head(MTP) as engine:
        yield engine


@pytest.mark.parametrize("logits", [True, False])
@pytest.mark.parametrize("chunk", [1, 7, 100])
def test_guesses_do_not_depend_on_how_the_tokens_came(engine: LlamaEngine, chunk: int, logits: bool) -> None:
    tokens = words(LENGTH, 2)
    token = int(read(engine, 0, tokens).argmax())
    expected = guess(engine, token)
    engine.memory.drop(0)
    for start in range(0, LENGTH, chunk):
        engine.decode([Work(0, tokens[start : start + chunk], logits=logits)])
    assert guess(engine, token) == guess(engine, token) == expected != []
    engine.memory.drop(0)


def test_what_was_taken_back_leaves_no_trace(engine: LlamaEngine) -> None:
    tokens = words(LENGTH, 3)
    guesses = []
    for offset in (0, 1, 2):
        read(engine, 0, tokens)
        if offset:
            work = Work(0, np.concatenate([tokens[:2], words(4, 100 + offset)]), num_drafted=4)
            engine.decode([work])
            engine.settle(work, 2)
        read(engine, 0, tokens[: LENGTH + 2 - engine.memory.length(0)])
        guesses.append(guess(engine, int(tokens[5])))
        engine.memory.drop(0)
    assert guesses[0] == guesses[1] == guesses[2] != []


def test_what_is_restored_or_dropped_is_not_guessed_from(engine: LlamaEngine) -> None:
    restore_and_drop(engine, words(LENGTH, 6))


@pytest.mark.parametrize("kind", ["mtp", "eagle"])
def test_a_full_context_is_emptied(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    settings = MTP_SETTINGS if kind == "mtp" else EAGLE_SETTINGS
    tokens = words(400, 7)
    with with_layer() as other:
        logits = read(other, 0, tokens)
    with with_layer() if kind == "mtp" else LlamaEngine.open(model_path(MTP), settings) as engine:
        engine.close_head()
        engine.context.settings = replace(settings, num_cells=256)
        main, replaced = engine.context, engine.memory.replaced
        if kind == "mtp":
            engine.head = MtpContext(main, replaced)
        else:
            engine.head = EagleContext(main, replaced, head_path(MTP), HEAD_DEVICES)
        np.testing.assert_allclose(read(engine, 0, tokens), logits, atol=0.01)
        assert "is emptied" in caplog.text
        assert guess(engine, int(tokens[0])) != [], "it goes on with what came later"
