"""Tries a projector in a process of its own: llama.cpp aborts on one that lacks a tensor, and only as it encodes.

What was tried once is remembered, by the content of the files: the next start takes no longer than without.
"""

import json
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
from blake3 import blake3

from leftoff.engine.binding.library import Library
from leftoff.engine.errors import EngineError, ModelError
from leftoff.engine.fingerprint import cache_folder, file_fingerprint
from leftoff.engine.model import Model
from leftoff.engine.vision.projector import WITHOUT_WEIGHTS, Projector

_REMEMBERED, _MAX_REMEMBERED = "projectors.json", 64
_PATIENCE_S = 300.0
_SIDE = 64  # pixels


def check_projector(path: Path, model: Path, library: Library) -> None:
    """Raises `ModelError` with the reason if pictures cannot be encoded with it."""
    name = blake3(f"{file_fingerprint(path)} {file_fingerprint(model)} {library.fingerprint}".encode()).hexdigest()
    memory = cache_folder() / _REMEMBERED
    remembered: list[str] = []
    with suppress(OSError, ValueError):
        remembered = [str(known) for known in json.loads(memory.read_text())]
    if name in remembered:
        return
    _try_apart(path, model)
    with suppress(OSError):
        memory.parent.mkdir(parents=True, exist_ok=True)
        memory.write_text(json.dumps([*remembered[1 - _MAX_REMEMBERED :], name]))


def _try_apart(path: Path, model: Path) -> None:
    command = [sys.executable, "-m", "leftoff.engine.vision.probe", str(path), str(model)]
    try:
        tried = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"the projector {path} took more than {_PATIENCE_S:.0f} s for a small picture") from error
    if tried.returncode > 0:
        raise ModelError(tried.stdout.strip() or f"the projector {path} failed: {tried.stderr.strip()[-500:]}")
    if tried.returncode:
        lines = [line for line in tried.stderr.splitlines() if "ASSERT" in line or "rror" in line]
        why = lines[-1].strip() if lines else f"signal {-tried.returncode}"
        raise ModelError(f"the projector {path} ends the process that encodes with it ({why}): fetch the file again")


def main(path: Path, model: Path) -> str:
    """Encodes a small picture. Returns why that is not possible, if llama.cpp says so."""
    try:
        projector = Projector(path, Model(model, WITHOUT_WEIGHTS))
        encoded = projector.encode(np.zeros((_SIDE, _SIDE, 3), np.uint8))
    except EngineError as error:
        return str(error)
    if not all(np.isfinite(part.rows).all() for part in encoded):
        return f"the projector {path} makes embeddings that are no numbers"
    return ""


if __name__ == "__main__":
    problem = main(Path(sys.argv[1]), Path(sys.argv[2]))
    if problem:
        sys.exit(print(problem) or 1)
