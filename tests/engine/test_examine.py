"""Files on which llama.cpp ends the process are found out in another one."""

import struct
from pathlib import Path

import pytest

from leftoff.engine.errors import ModelError
from leftoff.engine.examine import examine
from leftoff.models import EMBEDDED
from tests.factory import ARCHITECTURES, model_path


def changed(path: Path, key: bytes, value: int) -> Path:
    """The embedded model with another number in its metadata."""
    content = bytearray(EMBEDDED.read_bytes())
    at = content.index(key) + len(key) + 4
    content[at : at + 4] = struct.pack("<I", value)
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"qwen35.block_count", 0), (b"qwen35.block_count", 1 << 20), (b"qwen35.ssm.inner_size", 7)],
)
def test_a_file_that_would_end_the_process_is_refused(key: bytes, value: int, tmp_path: Path) -> None:
    path = changed(tmp_path / "bad.gguf", key, value)
    with pytest.raises(ModelError, match=r"bad\.gguf is damaged: llama\.cpp would end the server on it \(.*ASSERT"):
        examine(path)


@pytest.mark.parametrize("architecture", ARCHITECTURES[:2])
def test_a_good_one_and_one_whose_fault_is_told_elsewhere_pass(architecture: str, tmp_path: Path) -> None:
    examine(model_path(architecture))
    (tmp_path / "text.gguf").write_bytes(b"once upon a time")
    examine(tmp_path / "text.gguf")
    examine(tmp_path / "missing.gguf")
