"""What lies beside the project and is too large, or not ours, to be in it. Tests that need it are skipped without."""

from pathlib import Path

import pytest

from tests.beside import SHARED

__all__ = ["SHARED", "TINY", "needs", "shared_files"]


def shared_files(pattern: str) -> list[Path]:
    return sorted(SHARED.glob(pattern))


def needs(path: Path) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not path.exists(), reason=f"needs {path.name}, which is not part of the repository")


TINY = SHARED / "models" / "leftoff-tiny-q8_0.gguf"
