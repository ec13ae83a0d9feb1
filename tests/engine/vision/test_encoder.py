"""A picture is encoded once, whoever asks for it, however often, and after a restart not at all."""

import io
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from leftoff.disk.picture_files import FOLDER, PictureFiles
from leftoff.engine.vision.encoder import PictureEncoder
from leftoff.engine.vision.kept import KeptPictures
from leftoff.engine.vision.projector import Projector
from leftoff.machine import trim_heap
from leftoff.picture import Picture, PictureError, Pictures
from leftoff.picture_tokens import pictures_in
from leftoff.types import Embeddings, PictureSource
from tests.behaviour.mutated import held_mib
from tests.engine.vision.pictures import opened, pixels

MIB = 1 << 20
PATIENCE_S = 60.0


@pytest.fixture(scope="module")
def projector() -> Iterator[Projector]:
    with opened("nemotron_h", "idefics3") as (_, projector):
        yield projector


def png(seed: int, width: int = 130, height: int = 100) -> bytes:
    from PIL import Image  # noqa: PLC0415

    file = io.BytesIO()
    Image.fromarray(pixels(seed, width, height)).save(file, "PNG")
    return file.getvalue()


def taken(encoder: PictureEncoder, picture: Picture) -> list[Embeddings]:
    return [wait(source) for source in encoder.sources(picture)]


def wait(source: PictureSource) -> Embeddings:
    done = threading.Event()
    source.begin(done.set)
    assert done.wait(PATIENCE_S)
    embeddings = source.take()
    assert embeddings is not None
    return embeddings


def test_the_tokens_of_a_picture_are_those_of_its_layout_and_change_with_it(projector: Projector) -> None:
    encoder, files = PictureEncoder(projector, KeptPictures(MIB)), Pictures()
    one, other = files.take(png(1)), files.take(png(2))
    tokens = np.array(encoder.tokens(one).tokens, np.int32)
    spans = pictures_in(tokens)
    assert [span.num_tokens for span in spans] == [image.num_tokens for image in projector.layout(130, 100).images]
    assert encoder.tokens(files.take(png(1))) is encoder.tokens(one)
    assert all(tokens[spans[0].start : spans[0].end] != np.array(encoder.tokens(other).tokens)[: spans[0].end][-16:])
    of_another = files.take(png(1), namespace="another/")
    assert encoder.tokens(of_another).tokens != encoder.tokens(one).tokens
    encoder.close()


def test_it_is_encoded_once_for_all_who_ask(projector: Projector) -> None:
    encoder, files, before = PictureEncoder(projector, KeptPictures(MIB)), Pictures(), projector.num_encoded
    first = taken(encoder, files.take(png(1)))
    again = taken(encoder, files.take(png(1)))
    assert projector.num_encoded == before + 1
    assert files.num_decoded == 1
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one.rows, other.rows)
    encoder.close()


def test_what_is_not_kept_is_encoded_again(projector: Projector) -> None:
    encoder, files, before = PictureEncoder(projector, KeptPictures(0)), Pictures(), projector.num_encoded
    for _ in range(2):
        wait(encoder.sources(files.take(png(1)))[0])
    assert projector.num_encoded == before + 2
    encoder.close()


def test_after_a_restart_nothing_is_encoded(projector: Projector, tmp_path: Path) -> None:
    expected: list[Embeddings] = []
    for _ in range(2):
        before = projector.num_encoded
        encoder = PictureEncoder(projector, KeptPictures(MIB, PictureFiles(tmp_path, 16 * MIB)))
        picture = Pictures().take(png(1))
        found = taken(encoder, picture)
        assert picture.taken_by.held_bytes == 0
        expected = expected or found
        assert projector.num_encoded - before == (1 if found is expected else 0)
        for one, other in zip(expected, found, strict=True):
            np.testing.assert_array_equal(one.rows, other.rows)
            assert one.is_causal == other.is_causal
        encoder.close()


def test_a_damaged_file_is_encoded_again_and_a_tenant_is_forgotten(projector: Projector, tmp_path: Path) -> None:
    kept = KeptPictures(0, PictureFiles(tmp_path, 16 * MIB))
    encoder, before = PictureEncoder(projector, kept), projector.num_encoded
    picture = Pictures().take(png(1), namespace="ann/")
    wait(encoder.sources(picture)[0])
    (file,) = (tmp_path / FOLDER).iterdir()
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    wait(encoder.sources(picture)[0])
    assert projector.num_encoded == before + 2
    kept.remove(lambda namespace: namespace == "bob/")
    assert len([*(tmp_path / FOLDER).iterdir()]) == 1
    kept.remove(lambda namespace: namespace == "ann/")
    assert not [*(tmp_path / FOLDER).iterdir()]
    encoder.close()


def test_who_goes_away_takes_nothing_from_others(projector: Projector) -> None:
    encoder, files, gate, done = PictureEncoder(projector, KeptPictures(MIB)), Pictures(), threading.Event(), []
    encoder._thread.submit(gate.wait, PATIENCE_S)  # what is asked for now has to wait
    picture, stays = files.take(png(5)), threading.Event()
    gone, other, unwanted = (encoder.sources(each)[0] for each in (picture, picture, files.take(png(6))))
    gone.begin(lambda: done.append("gone"))
    other.begin(stays.set)
    unwanted.begin(lambda: done.append("unwanted"))
    before = projector.num_encoded
    gone.cancel()
    unwanted.cancel()
    gate.set()
    assert stays.wait(PATIENCE_S)
    assert other.take() is not None
    wait(encoder.sources(files.take(png(7)))[0])
    assert projector.num_encoded == before + 2, "nobody wanted the other one"
    encoder.close()


def test_freed_memory_is_given_back(projector: Projector) -> None:
    encoder, picture = PictureEncoder(projector, KeptPictures(MIB)), Pictures().take(png(8, 2400, 1600))
    taken(encoder, picture)
    encoder._thread.submit(lambda: None).result(PATIENCE_S)
    held = held_mib(os.getpid())
    trim_heap()
    assert held - held_mib(os.getpid()) < 8
    encoder.close()


def test_a_picture_that_cannot_be_read_at_once_is_refused(projector: Projector) -> None:
    encoder = PictureEncoder(projector, KeptPictures(MIB), most_tokens=8)
    with pytest.raises(PictureError, match="--ubatch"):
        encoder.tokens(Pictures().take(png(1)))
    encoder.close()


def test_the_tokens_that_are_remembered_are_bounded(projector: Projector) -> None:
    """By their bytes: of large pictures each has some thousands."""
    one, other = (Pictures().take(png(number)) for number in (1, 2))
    num_tokens = len(PictureEncoder(projector, KeptPictures(MIB)).tokens(one).tokens)
    encoder = PictureEncoder(projector, KeptPictures(MIB), remembered_bytes=60 * num_tokens)
    first = encoder.tokens(one)
    assert encoder.tokens(one) is first
    encoder.tokens(other)
    assert encoder.tokens(one) == first
    assert encoder.tokens(one) is not first
    encoder.close()
