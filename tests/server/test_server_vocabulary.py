"""What a server and a session need of a model's vocabulary before they start."""

from pathlib import Path

import numpy as np
import pytest

from leftoff.engine.errors import InputError, ModelError
from leftoff.engine.model import Model
from leftoff.host.build import open_host
from leftoff.session import Session
from tests.chat.vocabularies import no_vocabulary
from tests.server.fixtures import settings


@pytest.fixture
def mute(tmp_path: Path) -> Path:
    return no_vocabulary(tmp_path / "mute.gguf")


def test_a_server_refuses_a_model_without_one(mute: Path) -> None:
    with pytest.raises(ModelError, match=r"mute\.gguf has no vocabulary .* Convert the model again"):
        open_host(settings(model=str(mute))).close()


def test_a_session_refuses_it_too(mute: Path) -> None:
    with pytest.raises(ModelError, match="has no vocabulary"):
        Session(mute).close()


def test_asking_it_for_text_is_an_error_and_no_abort(mute: Path) -> None:
    model = Model(mute)
    with pytest.raises(InputError, match="token 7 stands for no text"):
        model.vocabulary.detokenize(np.array([7], np.int32))
    model.close()
