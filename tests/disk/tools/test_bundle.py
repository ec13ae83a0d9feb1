"""A bundle may come from anybody: it writes nothing but blobs under names of our own, or nothing at all."""

import json
import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from leftoff.blobs.blob import Blob
from leftoff.blobs.path_hash import HashedPath, as_bytes
from leftoff.cache.blob_store import Item
from leftoff.disk.errors import BundleError
from leftoff.disk.folder import model_folder
from leftoff.disk.tools.bundle import Part, export_bundle, import_bundle, read_manifest
from leftoff.disk.tools.catalog import Catalog
from leftoff.disk.tools.models import models
from leftoff.engine.memory.arena import view_of
from leftoff.engine.memory.base import WindowPage
from leftoff.engine.seal import WINDOW_PAGE, seal
from leftoff.types import Tokens
from tests.disk.stores import (
    FINGERPRINT,
    blob_files,
    content,
    filled,
    page,
    path_of,
    read,
    recalled,
    record_of,
    snapshot,
    store_in,
    written,
)

TOKENS = path_of(3000)
MAGIC = b"leftoff bundle\n"
Manifest = dict[str, Any]


def items() -> list[Item]:
    return [page(0, 1000), page(1000, 3000), snapshot(3000)]


def manifest_of(some: Sequence[Item], tokens: Tokens = TOKENS) -> Manifest:
    parts = [asdict(Part.of(Blob.of(item, HashedPath("", tokens)))) for item in some]
    strand = {"num_tokens": int(tokens.size), "parts": parts}
    return {"fingerprint": FINGERPRINT, "label": "model", "namespace": "", "strands": [strand]}


def bundle(path: Path, manifest: object, some: Sequence[Item], tokens: Tokens = TOKENS) -> Path:
    """A file as `export` writes it, whatever its manifest says."""
    text = manifest if isinstance(manifest, bytes) else json.dumps(manifest).encode()
    sealed = b"".join(
        seal(item, FINGERPRINT, Blob.of(item, HashedPath("", tokens)).tag) + view_of(item.data).tobytes()
        for item in some
    )
    path.write_bytes(MAGIC + struct.pack("<HI", 1, len(text)) + text + bytes(as_bytes(tokens)) + sealed)
    return path


def everything(folder: Path) -> dict[str, bytes]:
    """All that lies there, but for the inside of the index, and of a file that has none."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("index.sqlite")]
    return {str(path.relative_to(folder)): path.read_bytes() if path.stat().st_blocks > 8 else b"" for path in files}


def refused(tmp_path: Path, source: Path, match: str | None = None) -> None:
    """And nothing is left behind, neither in a new cache folder nor in one with something in it, nor beside them."""
    new, used = tmp_path / "new", tmp_path / "used"
    with store_in(used) as store:
        written(store, [page(0, 500)], TOKENS)
    before = everything(tmp_path)
    for root in (new, used):
        with pytest.raises(BundleError, match=match):
            import_bundle(root, source)
    assert everything(tmp_path) == before
    assert models(new) == []
    assert [usage.num_blobs for usage in models(used)] == [1]


def test_what_was_exported_is_imported_with_every_byte(tmp_path: Path) -> None:
    with store_in(tmp_path / "here") as store:
        written(store, items(), TOKENS)
    folder = model_folder(tmp_path / "here", FINGERPRINT)
    tip = max(Catalog.of(folder).blobs, key=lambda blob: (blob.end, blob.start))
    export_bundle(folder, tip, tmp_path / "file")
    import_bundle(tmp_path / "there", tmp_path / "file")
    import_bundle(tmp_path / "there", bundle(tmp_path / "by hand", manifest_of(items()), items()))
    with store_in(tmp_path / "there") as store:
        found = {content(read(store, record_of(item))) for _, item, _ in recalled(store).values()}
    assert found == {content(item) for item in items()}


# --- what it says


def changed(change: Callable[[Manifest], object]) -> Manifest:
    manifest = manifest_of(items())
    change(manifest)
    return manifest


def part(manifest: Manifest, number: int = 0) -> dict[str, Any]:
    found = manifest["strands"][0]["parts"][number]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    "change",
    [
        *(
            lambda m, name=name: m.update(fingerprint=name)
            for name in (
                *("../../../../etc", "/etc/passwd", "", "ab", "../" + FINGERPRINT[3:], "\0" * 64, "  " + FINGERPRINT),
                *(FINGERPRINT.upper(), FINGERPRINT + "\n", " ".join(FINGERPRINT), 7, None, ["ab"] * 32),
            )
        ),
        *(lambda m, name=name: m.update(label=name) for name in ("\x1b[2J", "a\nb", "x" * 999, "\ud800", 7, None)),
        *(lambda m, name=name: m.update(namespace=name) for name in ("\0", "\ud800", "x" * 999, 7, None, ["a"])),
        *(lambda m, n=n: m["strands"][0].update(num_tokens=n) for n in (-1, 1 << 40, 1 << 70, 2999, 3001, "3", True)),
        *(lambda m, n=n: part(m).update(nbytes=n) for n in (-1, 1 << 40, 1 << 70, 4999, 5001, 5.0, None)),
        *(lambda m, n=n: part(m).update(end=n) for n in (0, -1, 999, 3001, 1 << 62)),
        *(lambda m, n=n: part(m).update(kind=n) for n in (0, 2, 3, 1 << 20)),
        lambda m: part(m, 2).update(start=0),
        lambda m: part(m, 2).update(start=0, end=0),
        lambda m: m["strands"][0]["parts"].reverse(),
        lambda m: m["strands"][0]["parts"].pop(),
        lambda m: m["strands"][0]["parts"].append(part(m)),
        lambda m: m["strands"][0].update(parts=[]),
        lambda m: m["strands"][0].update(parts={}),
        lambda m: m["strands"].append(m["strands"][0]),
        lambda m: m["strands"].append({"num_tokens": 0, "parts": []}),
        lambda m: m.update(strands=[]),
        lambda m: m.pop("strands"),
    ],
)
def test_a_manifest_that_no_export_would_write_is_refused(tmp_path: Path, change: Callable[[Manifest], object]) -> None:
    refused(tmp_path, bundle(tmp_path / "file", changed(change), items()))


@pytest.mark.parametrize("text", [b"", b"7", b"[]", b'"x"', b"{", b"\xff\xfe", b"[" * 100_000, b"null", b"{}"])
def test_a_manifest_that_is_something_else_is_refused(tmp_path: Path, text: bytes) -> None:
    refused(tmp_path, bundle(tmp_path / "file", text, items()), "manifest cannot be read")


@pytest.mark.parametrize("content", [b"", b"hello", b"\x9b\x00" * 20, MAGIC])
def test_a_file_that_is_something_else_is_refused_without_its_bytes(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    refused(tmp_path, tmp_path / "file", "is not an exported cache: name one that `leftoff cache export` wrote$")


def test_a_part_twice_with_other_bytes_is_refused(tmp_path: Path) -> None:
    twice = [page(0, 1000), page(0, 1000, seed=1)]
    refused(tmp_path, bundle(tmp_path / "file", manifest_of(twice), twice))


def test_many_tiny_parts_are_taken_in(tmp_path: Path) -> None:
    """They cost as much as any other files, and no more."""
    tiny: list[Item] = [page(n, n + 1, nbytes=1) for n in range(100)]
    import_bundle(tmp_path / "cache", bundle(tmp_path / "file", manifest_of(tiny), tiny))
    assert len(blob_files(tmp_path / "cache")) == 100


# --- what it is


def sparse(path: Path, nbytes: int, length: int) -> Path:
    """Says it is large, and takes no room on the disk."""
    path.write_bytes(MAGIC + struct.pack("<HI", 1, length))
    os.truncate(path, nbytes)
    return path


def test_a_file_that_is_large_only_in_name_fills_no_memory(tmp_path: Path) -> None:
    refused(tmp_path, sparse(tmp_path / "file", 5 << 30, 0xFFFFFFFF), "manifest of 4,294,967,295 bytes")
    huge = changed(lambda m: part(m).update(nbytes=1 << 40))
    file = bundle(tmp_path / "file", huge, items())
    size = file.stat().st_size + (1 << 40) - 5000
    file.unlink()
    text = json.dumps(huge).encode()
    sparse(file, size, len(text))
    with file.open("rb+") as opened:
        opened.seek(len(MAGIC) + 6)
        opened.write(text)
    refused(tmp_path, file, "a part of 1,099,511,627,776 bytes")


@pytest.mark.parametrize("kept", [0, 10, 15, 20, 21, 100, 12_500, -1])
def test_a_file_that_is_cut_short_or_goes_on_is_refused(tmp_path: Path, kept: int) -> None:
    file = bundle(tmp_path / "file", manifest_of(items()), items())
    whole = file.read_bytes()
    file.write_bytes(whole[:kept])
    refused(tmp_path, file)
    file.write_bytes(whole + b"x")
    refused(tmp_path, file)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_wrong_checksum_in_any_part_is_refused_before_anything_is_written(tmp_path: Path, which: int) -> None:
    file = bundle(tmp_path / "file", manifest_of(items()), items())
    whole = bytearray(file.read_bytes())
    whole[-1 - 5200 * which] ^= 1
    file.write_bytes(whole)
    refused(tmp_path, file, "checksum")


def test_what_is_no_file_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for source in (tmp_path / "pipe", tmp_path, Path("/dev/zero")):
        with pytest.raises(BundleError, match="is no file"):
            read_manifest(source)
        with pytest.raises(BundleError, match="is no file"):
            import_bundle(tmp_path / "cache", source)
    assert not (tmp_path / "cache").exists()


# --- where it goes


def test_what_changes_between_two_looks_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is verified once more while it is written: what was written until then goes again."""
    file = bundle(tmp_path / "file", manifest_of(items()), items())
    flush = _Flush(file)
    monkeypatch.setattr("leftoff.blobs.store.MediumBlobStore.flush", flush)
    with pytest.raises(BundleError, match="checksum"):
        import_bundle(tmp_path / "cache", file)
    monkeypatch.undo()
    assert flush.calls, "something was written before"
    assert models(tmp_path / "cache") == []


class _Flush:
    """Damages the end of the bundle once its first part is on disk."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.calls: list[float] = []

    def __get__(self, store: Any, _owner: object = None) -> Callable[[float], bool]:  # noqa: ANN401
        def flush(timeout_s: float) -> bool:
            self.calls.append(timeout_s)
            with self._file.open("rb+") as file:
                file.seek(-1, os.SEEK_END)
                file.write(b"?")
            return bool(store._writer.flush(timeout_s))

        return flush


def test_a_bundle_larger_than_the_disk_is_refused_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = os.statvfs(tmp_path)
    full = os.statvfs_result([*disk[:4], 0, *disk[5:]])
    file = bundle(tmp_path / "file", manifest_of(items()), items())
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    with pytest.raises(BundleError, match="is full: free some space"):
        import_bundle(tmp_path / "cache", file)
    assert models(tmp_path / "cache") == []


def test_a_known_model_keeps_its_name(tmp_path: Path) -> None:
    import_bundle(tmp_path, bundle(tmp_path / "file", manifest_of(items()), items()))
    renamed = manifest_of(items()) | {"label": "another"}
    import_bundle(tmp_path, bundle(tmp_path / "file", renamed, items()))
    assert [usage.label for usage in models(tmp_path)] == ["model"]


def test_an_export_overwrites_no_file_through_a_link(tmp_path: Path) -> None:
    with store_in(tmp_path / "cache") as store:
        written(store, [page(0, 1000)], TOKENS)
    folder, target, other = model_folder(tmp_path / "cache", FINGERPRINT), tmp_path / "file", tmp_path / "other"
    other.write_text("somebody's")
    (tmp_path / "file.new").symlink_to(other)
    target.symlink_to(other)
    export_bundle(folder, Catalog.of(folder).blobs[0], target)
    assert other.read_text() == "somebody's"
    assert not target.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o600


def test_of_window_pages_with_one_end_the_longest_is_exported(tmp_path: Path) -> None:
    """The shorter one follows a page that is gone: the snapshot would have no whole window."""
    kept: list[Item] = [page(0, 1000), snapshot(1000)]
    kept += [WindowPage(start, 1000, filled(500, f"window {start}")) for start in (700, 900)]
    with store_in(tmp_path / "cache") as store:
        written(store, kept, TOKENS)
    folder = model_folder(tmp_path / "cache", FINGERPRINT)
    (point,) = (blob for blob in Catalog.of(folder).blobs if blob.is_snapshot)
    manifest = export_bundle(folder, point, tmp_path / "file")
    assert [part.start for part in manifest.strands[0].parts if part.kind == WINDOW_PAGE] == [700]
