"""Adapter files are checked before llama.cpp sees them: it aborts on some, and says nothing of others."""

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from leftoff.engine.adapter_file import read_control_vectors, read_lora
from leftoff.engine.errors import ModelError
from tests.factory import model_path
from tests.factory.adapters import control_vector_bytes, lora_bytes, lora_path
from tests.factory.projectors import gguf_bytes

MODEL = "llama"
SIZE = 1 << 20  # of the vocabulary


def read(path: Path, content: bytes, num_tokens: int = SIZE) -> None:
    path.write_bytes(content)
    read_lora(path, model_path(MODEL), num_tokens)


def test_an_adapter_for_the_model_is_read() -> None:
    path = lora_path(model_path(MODEL), 1, (40, 41))
    file = read_lora(path, model_path(MODEL), SIZE)
    assert file.invocation == (40, 41)
    assert file.num_bytes == path.stat().st_size
    assert file.fingerprint != read_lora(lora_path(model_path(MODEL), 2), model_path(MODEL), SIZE).fingerprint


def test_a_copy_has_the_same_fingerprint(tmp_path: Path) -> None:
    path = lora_path(model_path(MODEL), 1)
    copy = tmp_path / "another-name.gguf"
    copy.write_bytes(path.read_bytes())
    one, other = (read_lora(each, model_path(MODEL), SIZE) for each in (path, copy))
    assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda data: data.replace(b"adapter", b"adaptor", 1), "is no adapter"),
        (lambda data: data.replace(b"lora", b"pora", 1), "of type"),
        (lambda data: data.replace(b"llama", b"gemma", 1), "for gemma models"),
        (lambda data: data.replace(b"adapter.lora.alpha", b"adapter.lora.alphb", 1), "alpha"),
        (lambda data: data.replace(b".lora_a", b".lora_c", 1), "no part of a LoRA"),
        (lambda data: data.replace(b"blk.1.", b"blk.9.", 1), "does not have|one of the two"),
        (lambda data: data[: len(data) - 4096], "not all there"),
        (lambda data: data[:200], "damaged"),
        (lambda data: b"GGUX" + data[4:], "not a GGUF file"),
        (lambda _: b"", "not a GGUF file"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(change: Callable[[bytes], bytes], problem: str, tmp_path: Path) -> None:
    whole = lora_bytes(model_path(MODEL), 1)
    with pytest.raises(ModelError, match=problem):
        read(tmp_path / "bad.gguf", change(whole))


def test_every_cut_and_many_flipped_bytes_are_refused_or_harmless(tmp_path: Path) -> None:
    """Only this process reads them: whatever is accepted has the shapes of the model, and all of its bytes."""
    whole, rng = bytearray(lora_bytes(model_path(MODEL), 1)), np.random.default_rng(0)
    for _ in range(200):
        content = bytearray(whole)
        content[int(rng.integers(0, 4000))] = int(rng.integers(0, 256))
        try:
            read(tmp_path / "flipped.gguf", bytes(content[: int(rng.integers(24, len(whole)))]))
        except ModelError:
            continue


@pytest.mark.parametrize("tokens", [[5, 1 << 21], list(range(2000))])
def test_an_invocation_that_the_vocabulary_cannot_write_is_refused(tokens: list[int], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="another vocabulary"):
        read(tmp_path / "a.gguf", lora_bytes(model_path(MODEL), 1, tokens))


def test_shapes_of_another_model_are_refused(tmp_path: Path) -> None:
    data = lora_bytes(model_path(MODEL), 1)
    start = data.index(b".lora_a") + len(b".lora_a") + 4
    (width,) = struct.unpack_from("<Q", data, start)
    with pytest.raises(ModelError, match=r"does not fit|not all there"):
        read(tmp_path / "wide.gguf", data[:start] + struct.pack("<Q", width // 2) + data[start + 8 :])


def test_a_missing_file_is_told() -> None:
    with pytest.raises(ModelError, match="no adapter or control vector to read at /nowhere"):
        read_lora(Path("/nowhere.gguf"), model_path(MODEL), SIZE)


def test_another_file_in_its_place_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(lora_bytes(model_path(MODEL), 1))
    file = read_lora(path, model_path(MODEL), SIZE)
    file.require_same()
    path.write_bytes(lora_bytes(model_path(MODEL), 2))
    with pytest.raises(ModelError, match="not the adapter any more"):
        file.require_same()


def test_control_vectors_are_added_up(tmp_path: Path) -> None:
    path = tmp_path / "v.gguf"
    path.write_bytes(control_vector_bytes(model_path(MODEL), 1))
    once = read_control_vectors([(path, 1.0)], model_path(MODEL), (0, 0))
    twice = read_control_vectors([(path, 1.5), (path, 0.5)], model_path(MODEL), (0, 0))
    assert np.allclose(twice.rows, 2 * once.rows)
    assert twice.fingerprint != once.fingerprint
    assert once.first_layer == 1
    fewer = read_control_vectors([(path, 1.0)], model_path(MODEL), (1, 1))
    assert (fewer.first_layer, fewer.last_layer) == (1, 1)
    assert fewer.fingerprint != once.fingerprint


@pytest.mark.parametrize(
    ("name", "width", "problem"),
    [("direction.1", 7, "wide"), ("direction.99", 0, "no control"), ("x", 0, "no control")],
)
def test_a_control_vector_for_another_model_is_refused(name: str, width: int, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "v.gguf"
    path.write_bytes(gguf_bytes({"general.architecture": "controlvector"}, {name: np.ones(width or 64, np.float32)}))
    with pytest.raises(ModelError, match=problem):
        read_control_vectors([(path, 1.0)], model_path(MODEL), (0, 0))


def test_layers_that_the_model_does_not_have_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "v.gguf"
    path.write_bytes(control_vector_bytes(model_path(MODEL), 1))
    with pytest.raises(ModelError, match="layers"):
        read_control_vectors([(path, 1.0)], model_path(MODEL), (80, 90))
