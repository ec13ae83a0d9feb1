"""The header of a model: that of its first file, with the tensors of all its files.

It is asked for several times at start, and a large vocabulary takes a while: the last ones are kept.
"""

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from leftoff.engine import gguf
from leftoff.engine.errors import ModelError
from leftoff.engine.fingerprint import Identity, identity_of, model_parts

_KNOWN_HEADERS = 16


def model_header(path: Path) -> gguf.Header:
    """The header of a model, of all its files. Raises `ModelError` if it cannot be read."""
    try:
        return _read_header(tuple(map(identity_of, model_parts(path))))
    except (OSError, *gguf.DAMAGED) as error:
        raise ModelError(f"{path} cannot be examined ({error})") from error


@lru_cache(_KNOWN_HEADERS)
def _read_header(files: tuple[Identity, ...]) -> gguf.Header:
    parts = [gguf.read_header(Path(file.path)) for file in files]
    return replace(parts[0], tensors=tuple(tensor for part in parts for tensor in part.tensors))
