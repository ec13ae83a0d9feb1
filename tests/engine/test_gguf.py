"""The header of a model file, read without llama.cpp."""

from pathlib import Path

import pytest

from leftoff.engine.gguf import DAMAGED, read_header, vocabulary_texts
from leftoff.engine.model import Model
from tests.factory import ARCHITECTURES, model_path, small_vocabulary


def test_the_vocabulary_is_read_in_its_order() -> None:
    texts = [text.decode() for text in vocabulary_texts(model_path("llama"))]
    assert texts == [*small_vocabulary().tokens]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_tensors_together_have_the_size_of_the_model(architecture: str) -> None:
    path = model_path(architecture)
    header = read_header(path)
    tensors = header.tensors
    model = Model(path)
    assert model.size_bytes <= sum(tensor.num_bytes for tensor in tensors) <= 1.02 * model.size_bytes
    model.close()
    names = {tensor.name for tensor in tensors}
    assert len(names) == len(tensors)
    assert "token_embd.weight" in names
    assert any(name.startswith("blk.1.") for name in names)
    assert header.num_tokens == len(small_vocabulary().tokens)


def test_the_architecture_is_told() -> None:
    assert read_header(model_path("lfm2-window")).architecture == "lfm2"


@pytest.mark.parametrize("length", [20, 3000])
def test_a_file_that_is_cut_short_is_known_as_damaged(length: int, tmp_path: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(model_path("llama").read_bytes()[:length])
    with pytest.raises(DAMAGED):
        read_header(path)
    with pytest.raises(DAMAGED):
        list(vocabulary_texts(path))
