"""Bytes from outside are the bytes that were sealed, or they are refused before llama.cpp sees any of them."""

import io
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest

from leftoff.engine.engine import LlamaEngine
from leftoff.engine.errors import BlobError
from leftoff.engine.memory.arena import view_of
from leftoff.engine.memory.base import Page, Snapshot, WindowPage
from leftoff.engine.seal import FORMAT, SEAL_BYTES, TAG_BYTES, seal, unseal
from tests.engine.conftest import SETTINGS
from tests.engine.scenario import Saved, cold, load, prompt, read, reply, save
from tests.factory import model_path

TAG = bytes(range(TAG_BYTES))
CORRUPTIONS = 340  # of each model: more than a thousand together

pytestmark = pytest.mark.parametrize("engine", ["qwen35", "gemma3", "rwkv7"], indirect=True)

Corrupt = Callable[[bytes, np.random.Generator], bytes]
# magic, format, kind | fingerprint | start | end | payload bytes | tag | checksum
FIELDS = [(0, 12), (12, 44), (44, 52), (52, 60), (60, 68), (68, 100), (100, 132)]


@dataclass(frozen=True)
class Blob:
    """A sealed page or snapshot, as it would be written to disk."""

    item: Page | Snapshot
    content: bytes


def flip(blob: bytes, rng: np.random.Generator) -> bytes:
    changed = bytearray(blob)
    changed[rng.integers(len(blob))] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def flip_in_header(blob: bytes, rng: np.random.Generator) -> bytes:
    return flip(blob[:SEAL_BYTES], rng) + blob[SEAL_BYTES:]


def truncate(blob: bytes, rng: np.random.Generator) -> bytes:
    return blob[: rng.integers(len(blob))]


def extend(blob: bytes, rng: np.random.Generator) -> bytes:
    return blob + rng.bytes(int(rng.integers(1, 100)))


def swap_fields(blob: bytes, rng: np.random.Generator) -> bytes:
    """Two header fields of the same length change places: a no-op where they are equal."""
    pairs = [(a, b) for a in FIELDS for b in FIELDS if a < b and a[1] - a[0] == b[1] - b[0]]
    (first, first_end), (second, second_end) = pairs[rng.integers(len(pairs))]
    return blob[:first] + blob[second:second_end] + blob[first_end:second] + blob[first:first_end] + blob[second_end:]


def repeat_a_stretch(blob: bytes, rng: np.random.Generator) -> bytes:
    """A block that was written twice, over its neighbour: a no-op where both are equal."""
    start = int(rng.integers(0, len(blob) - 128))
    return blob[: start + 64] + blob[start : start + 64] + blob[start + 128 :]


def zero_a_stretch(blob: bytes, rng: np.random.Generator) -> bytes:
    start = int(rng.integers(0, len(blob)))
    return blob[:start] + bytes(len(blob[start : start + 512])) + blob[start + 512 :]


def replace_all(blob: bytes, rng: np.random.Generator) -> bytes:
    return rng.bytes(len(blob))


CORRUPT: tuple[Corrupt, ...] = (
    *(flip, flip_in_header, truncate, extend),
    *(swap_fields, repeat_a_stretch, zero_a_stretch, replace_all),
)


@pytest.fixture
def blobs(engine: LlamaEngine) -> list[Blob]:
    """A sequence of two pages and a snapshot, sealed; it stays in the engine."""
    read(engine, 0, prompt(engine, 90))
    saved = save(engine, 0)
    items: list[Page | Snapshot] = list(saved.pages)
    if saved.snapshot is not None:
        items += (*saved.snapshot.window, saved.snapshot)
    return [Blob(item, sealed(item, engine.memory.fingerprint)) for item in items]


@pytest.fixture(scope="module")
def other_kv_type(engine: LlamaEngine) -> Iterator[str]:
    """The fingerprint of the same model with another KV type."""
    settings = type(SETTINGS)(num_cells=256, num_sequences=1, threads=1, kv_type="f32")
    with LlamaEngine.open(engine.model.path, settings) as other:
        yield other.memory.fingerprint


def sealed(item: Page | Snapshot, fingerprint: str) -> bytes:
    return seal(item, fingerprint, TAG) + view_of(item.data).tobytes()


def opened(engine: LlamaEngine, content: bytes) -> Page | Snapshot:
    return unseal(io.BytesIO(content), len(content), engine.memory.fingerprint, engine.context.arena, TAG)


def same(found: Page | Snapshot, item: Page | Snapshot) -> bool:
    where = [(x.start, x.end) if isinstance(x, Page) else x.position for x in (found, item)]
    return where[0] == where[1] and np.array_equal(view_of(found.data), view_of(item.data))


def test_what_was_sealed_comes_back_and_goes_on(engine: LlamaEngine, blobs: list[Blob]) -> None:
    found = [opened(engine, blob.content) for blob in blobs]
    assert all(same(item, blob.item) for item, blob in zip(found, blobs, strict=True))
    expected, expected_reply, _ = cold(engine, prompt(engine, 90), 8)
    window = tuple(item for item in found if isinstance(item, WindowPage))
    pages = tuple(item for item in found if isinstance(item, Page) and item not in window)
    (snapshot,) = (replace(item, window=window) for item in found if isinstance(item, Snapshot))
    load(engine, 1, Saved(90, pages, snapshot))
    assert reply(engine, 1, expected, 8)[0] == expected_reply


def test_damaged_blobs_are_refused_before_llama_sees_them(engine: LlamaEngine, blobs: list[Blob]) -> None:
    before = save(engine, 0).content
    lent = engine.context.arena.lent_bytes
    refused = harmless = 0
    for number in range(CORRUPTIONS):
        rng = np.random.default_rng(number)
        blob = blobs[number % len(blobs)]
        content = CORRUPT[number % len(CORRUPT)](blob.content, rng)
        if content == blob.content:
            assert same(opened(engine, content), blob.item)
            harmless += 1
            continue
        with pytest.raises(BlobError):
            opened(engine, content)
        refused += 1
    assert refused > 0.8 * CORRUPTIONS
    assert refused + harmless == CORRUPTIONS
    assert save(engine, 0).content == before
    assert engine.context.arena.lent_bytes == lent, "a refused blob leaves no memory behind"
    assert np.isfinite(read(engine, 0, prompt(engine, 5))).all()


@pytest.mark.parametrize("content", [b"", b"\x00", b"leftoff\x00", bytes(SEAL_BYTES), b"GGUF" * 100])
def test_what_is_no_blob_is_refused(engine: LlamaEngine, content: bytes) -> None:
    with pytest.raises(BlobError, match=r"cut short|not a leftoff blob"):
        opened(engine, content)


def test_a_blob_of_another_kv_type_is_refused(engine: LlamaEngine, blobs: list[Blob], other_kv_type: str) -> None:
    for blob in blobs:
        with pytest.raises(BlobError, match="another model, library or KV type"):
            opened(engine, sealed(blob.item, other_kv_type))


def test_a_blob_of_another_model_is_refused(engine: LlamaEngine, blobs: list[Blob]) -> None:
    with LlamaEngine.open(model_path("llama"), SETTINGS) as other:
        assert other.memory.fingerprint != engine.memory.fingerprint
        for blob in blobs:
            with pytest.raises(BlobError, match="another model, library or KV type"):
                opened(other, blob.content)


def test_a_blob_made_from_other_tokens_is_refused(engine: LlamaEngine, blobs: list[Blob]) -> None:
    fingerprint, arena = engine.memory.fingerprint, engine.context.arena
    for blob in blobs:
        with pytest.raises(BlobError, match="other tokens"):
            unseal(io.BytesIO(blob.content), len(blob.content), fingerprint, arena, TAG[::-1])
        found = unseal(io.BytesIO(blob.content), len(blob.content), fingerprint, arena)
        assert same(found, blob.item), "asked for no tag, any will do"


def test_a_blob_of_a_newer_format_says_so(engine: LlamaEngine, blobs: list[Blob]) -> None:
    for blob in blobs:
        newer = blob.content[:8] + struct.pack("<H", FORMAT + 1) + blob.content[10:]
        with pytest.raises(BlobError, match=f"format {FORMAT + 1}: this leftoff reads format {FORMAT}"):
            opened(engine, newer)


def test_a_page_does_not_pass_for_a_snapshot(engine: LlamaEngine, blobs: list[Blob]) -> None:
    for blob in blobs:
        kind = {1: 2, 2: 1, 3: 1}[blob.content[10]]
        with pytest.raises(BlobError, match="checksum"):
            opened(engine, blob.content[:10] + bytes([kind]) + blob.content[11:])
