"""Layouts need no pixels and are those of what is encoded; files that cannot be used are refused with a reason."""

from pathlib import Path

import numpy as np
import pytest

from leftoff.engine.context import ContextSettings
from leftoff.engine.errors import InputError, ModelError
from leftoff.engine.model import Model
from leftoff.engine.vision.probe import check_projector
from leftoff.engine.vision.projector import WITHOUT_WEIGHTS, Projector
from tests.engine.vision.pictures import PAIRS, opened, pixels
from tests.factory import model_path
from tests.factory.projectors import projector_path

MODEL, KIND = PAIRS[0]


@pytest.mark.parametrize(("architecture", "kind"), PAIRS[:4])
def test_a_layout_without_pixels_is_that_of_the_picture(architecture: str, kind: str) -> None:
    with opened(architecture, kind) as (_, projector):
        for size in ((64, 64), (200, 150), (90, 310)):
            images, encoded = projector.layout(*size).images, projector.encode(pixels(1, *size))
            assert [image.num_tokens for image in images] == [len(part.rows) for part in encoded]
            assert [image.is_causal for image in images] == [part.is_causal for part in encoded]
        assert projector.num_encoded == 3


def test_encoding_twice_or_after_a_sleep_gives_the_same_numbers() -> None:
    with opened(MODEL, KIND) as (_, projector):
        (first,) = projector.encode(pixels(1))
        projector.close()
        (again,) = projector.encode(pixels(1))
        (other,) = projector.encode(pixels(2))
        np.testing.assert_array_equal(first.rows, again.rows)
        assert not np.array_equal(first.rows, other.rows)


def test_another_file_in_its_place_is_not_used_under_its_name(tmp_path: Path) -> None:
    model = Model(model_path(MODEL))
    content = projector_path(KIND, 64).read_bytes()
    path = tmp_path / "own.gguf"
    path.write_bytes(content)
    projector = Projector(path, model)
    path.touch()
    (first,) = projector.encode(pixels(1))
    path.write_bytes(content[:-64] + content[-64:][::-1])
    np.testing.assert_array_equal(projector.encode(pixels(1))[0].rows, first.rows)
    projector.sleep()
    for _ in range(2):
        with pytest.raises(ModelError, match="is not the projector any more that was loaded"):
            projector.encode(pixels(1))
    path.write_bytes(content)
    np.testing.assert_array_equal(projector.encode(pixels(1))[0].rows, first.rows)
    projector.close()
    model.close()


def test_the_limits_of_a_picture_are_part_of_what_it_is() -> None:
    with opened(MODEL, KIND) as (engine, projector):
        larger = Projector(projector.path, engine.model, min_tokens=100)
        assert larger.layout(64, 64).images[0].num_tokens >= 100 > projector.layout(64, 64).images[0].num_tokens
        assert larger.fingerprint != projector.fingerprint
        larger.close()


def test_a_context_takes_pictures_that_must_be_read_at_once() -> None:
    small = ContextSettings(num_cells=2048, micro_batch_tokens=8)
    with opened("gemma3", "gemma3") as (_, projector):
        assert projector.context_for(small).micro_batch_tokens >= projector.largest.num_tokens
    with opened(MODEL, KIND) as (_, projector):
        assert projector.context_for(small) == small


def test_what_are_no_pixels_is_refused() -> None:
    with opened(MODEL, KIND) as (_, projector), pytest.raises(InputError, match="RGB"):
        projector.encode(np.zeros((4, 4), np.uint8))


def damaged(folder: Path, what: str) -> Path:
    path, content = folder / "mmproj.gguf", projector_path(KIND, 64).read_bytes()
    if what == "lacks a tensor":  # llama.cpp aborts when it encodes
        content = content.replace(b"v.patch_embd.bias", b"v.patch_embd.bIas")
    elif what == "truncated":
        content = content[: len(content) // 3]
    elif what == "of another width":
        content = projector_path(KIND, 128).read_bytes()
    elif what == "a model":
        content = model_path(MODEL).read_bytes()
    elif what == "no GGUF":
        content = b"nothing of the kind"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("what", "reason"),
    [
        ("lacks a tensor", "ASSERT"),
        ("truncated", "failed to"),
        ("of another width", "mismatch"),
        ("a model", "architecture"),
        ("no GGUF", "no projector"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_reason(tmp_path: Path, what: str, reason: str) -> None:
    model = Model(model_path(MODEL), WITHOUT_WEIGHTS)
    with pytest.raises(ModelError, match=reason):
        check_projector(damaged(tmp_path, what), model.path, model.library)
    model.close()


def test_a_vocabulary_without_its_tokens_is_refused() -> None:
    with opened("nemotron_h", "idefics3") as (engine, projector):
        engine.model.vocabulary.size = 300
        with pytest.raises(ModelError, match="lacks its tokens"):
            projector._layout(64, 64)


def test_positions_of_mrope_beside_a_window_are_refused() -> None:
    with opened("qwen35", KIND) as (engine, projector):
        engine.model.window = 32
        with pytest.raises(ModelError, match="sliding window"):
            Projector(projector.path, engine.model)
