"""A model is named by its content, and its content is not read twice."""

import os
import resource
from pathlib import Path

import numpy as np
import pytest
from blake3 import blake3

from leftoff.engine.fingerprint import cache_folder, file_fingerprint, model_parts

CONTENT = b"GGUF" + np.random.default_rng(1).bytes(3_000_000)


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    return tmp_path / "memory"


def model(path: Path, content: bytes = CONTENT) -> Path:
    path.write_bytes(content)
    return path


def changed(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def test_equal_content_has_one_name_and_other_content_another(tmp_path: Path, memory: Path) -> None:
    original = file_fingerprint(model(tmp_path / "a.gguf"), memory)
    assert original == blake3(CONTENT).hexdigest()
    assert file_fingerprint(model(tmp_path / "b.gguf"), memory) == original
    names = {original}
    for place in (0, len(CONTENT) // 2, len(CONTENT) - 1):
        names.add(file_fingerprint(model(tmp_path / "c.gguf", changed(CONTENT, place)), memory / str(place)))
    assert len(names) == 4


def test_a_file_that_was_replaced_is_read_again(tmp_path: Path, memory: Path) -> None:
    path = model(tmp_path / "a.gguf")
    first = file_fingerprint(path, memory)
    replacement = model(tmp_path / "new.gguf", changed(CONTENT, 1_500_000))
    os.utime(replacement, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    replacement.replace(path)  # same name, size and time: the inode tells
    assert file_fingerprint(path, memory) != first


def test_a_file_that_was_written_over_is_read_again(tmp_path: Path, memory: Path) -> None:
    path = model(tmp_path / "a.gguf")
    first, time = file_fingerprint(path, memory), path.stat().st_mtime_ns
    model(path, changed(CONTENT, 1_500_000))
    os.utime(path, ns=(time, time + 1))
    assert file_fingerprint(path, memory) != first


def test_the_memory_goes_by_size_time_and_inode(tmp_path: Path, memory: Path) -> None:
    """A file written over in place with its time set back is believed to be the old one. Without memory it is not."""
    path = model(tmp_path / "a.gguf")
    first, stat = file_fingerprint(path, memory), path.stat()
    model(path, changed(CONTENT, 1_500_000))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert file_fingerprint(path, memory) == first
    assert file_fingerprint(path, tmp_path / "fresh") != first


def test_a_split_model_is_named_by_all_its_parts(tmp_path: Path, memory: Path) -> None:
    parts = [model(tmp_path / f"big-0000{part}-of-00003.gguf", bytes([part]) * 5000) for part in (1, 2, 3)]
    first = file_fingerprint(parts[0], memory)
    assert [*map(str, model_parts(parts[0]))] == [*map(str, parts)]
    assert first == blake3(b"".join(part.read_bytes() for part in parts)).hexdigest()
    model(parts[2], b"another ending")
    assert file_fingerprint(parts[0], memory) != first
    parts[1].unlink()
    with pytest.raises(FileNotFoundError, match="big-00002-of-00003"):
        file_fingerprint(parts[0], memory)


@pytest.mark.parametrize("name", ["plain.gguf", "model-1-of-3.gguf", "x-00001-of-00002.bin"])
def test_other_names_stand_for_one_file(name: str) -> None:
    assert model_parts(Path(name)) == [Path(name)]


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[1, 2]", b"null", b"\xff\xfe\x00", b'{"a": 1}', b"{}" * 100, b"[" * 500]
)
def test_a_damaged_memory_costs_only_the_reading(tmp_path: Path, memory: Path, damage: bytes) -> None:
    path = model(tmp_path / "a.gguf")
    first = file_fingerprint(path, memory)
    (file,) = memory.iterdir()
    intact = file.read_bytes()
    file.write_bytes(damage)
    assert file_fingerprint(path, memory) == first
    assert intact.strip(b"{}") in file.read_bytes(), "and is whole again"


def test_a_memory_that_cannot_be_written_does_no_harm(tmp_path: Path) -> None:
    path = model(tmp_path / "a.gguf")
    (tmp_path / "file").touch()
    read_only = tmp_path / "read-only"
    read_only.mkdir()
    read_only.chmod(0o500)
    for folder in (tmp_path / "file", tmp_path / "file" / "below", read_only):
        assert file_fingerprint(path, folder) == blake3(CONTENT).hexdigest()
    assert (tmp_path / "file").read_bytes() == b""


def test_on_a_full_disk_nothing_is_left_of_a_memory_that_could_not_be_written(tmp_path: Path, memory: Path) -> None:
    path = model(tmp_path / "a.gguf")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8, before[1]))  # no file may grow beyond these bytes
    try:
        assert file_fingerprint(path, memory) == blake3(CONTENT).hexdigest()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [*memory.iterdir()] == []


def test_the_memory_does_not_grow_for_ever(tmp_path: Path, memory: Path) -> None:
    for number in range(300):
        file_fingerprint(model(tmp_path / f"{number}.gguf", b"GGUF"), memory)
    (file,) = memory.iterdir()
    assert len(file.read_text()) < 300 * len(str(tmp_path)) + 300 * 150
    assert "299.gguf" in file.read_text()
    assert "/0.gguf" not in file.read_text()


def test_the_memory_lies_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    assert cache_folder() == tmp_path / "caches" / "leftoff"
    path = model(tmp_path / "a.gguf")
    file_fingerprint(path)
    assert [*cache_folder().iterdir()]
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_folder() == tmp_path / "home" / ".cache" / "leftoff"
