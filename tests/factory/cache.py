"""Keeps built models between test runs. Several processes may ask for the same one at once.

Some builds of llama.cpp cannot make a model from metadata alone. To test one of them, make the models with another
library first, by `python -m tests.factory FOLDER`, and name the folder in LEFTOFF_TEST_MODELS.
"""

import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path

from leftoff.engine.binding.library import load_library

from .architectures import RECIPES, Recipe
from .gguf import Value, write_model
from .parts import Scale
from .template import CHAT_TEMPLATE
from .vocabulary import small_vocabulary
from .weights import Weights

SMALL = Scale()
GIVEN = "LEFTOFF_TEST_MODELS"


def model_path(architecture: str, scale: Scale = SMALL) -> Path:
    """The GGUF file of a model, built now unless an earlier run has built it."""
    size = f"width{scale.width}-depth{scale.depth}-context{scale.context_length}"
    path = folder() / f"{architecture}-{size}.gguf"
    if not path.exists():
        _build(path, RECIPES[architecture], scale)
    return path


def _build(path: Path, recipe: Recipe, scale: Scale) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Built aside and renamed: another process sees the whole file or none, and two builders write the same bytes.
    with tempfile.TemporaryDirectory(dir=path.parent) as aside:
        unfinished = Path(aside, path.name)
        weights = Weights(small_vocabulary().words, recipe.embedding)
        write_model(unfinished, metadata_of(recipe, scale), weights.fill, recipe.omit)
        unfinished.replace(path)


def metadata_of(recipe: Recipe, scale: Scale) -> dict[str, Value]:
    name = recipe.architecture
    keys: dict[str, Value] = {f"{name}.{key}": value for key, value in recipe.metadata(scale).items()}
    fixed: dict[str, Value] = {
        "general.architecture": name,
        "tokenizer.chat_template": CHAT_TEMPLATE,
        "tokenizer.ggml.token_type_count": 2,  # for encoders
    }
    return fixed | small_vocabulary().metadata() | keys


@cache
def folder() -> Path:
    """A folder of its own for each version of the factory and of the library, so that a change rebuilds."""
    given = os.environ.get(GIVEN)
    if given:
        return Path(given)
    version = hashlib.sha256(load_library().fingerprint.encode())
    for source in sorted(Path(__file__).parent.glob("*.py")):
        if not source.name.startswith("test_"):
            version.update(source.read_bytes())
    # not in XDG_CACHE_HOME: while tests run, that is a folder that is removed after them
    return Path.home() / ".cache" / "leftoff-tests" / version.hexdigest()[:16]
