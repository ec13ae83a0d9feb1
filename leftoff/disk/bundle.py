"""A beginning of prompts as one file, to be shipped with an application: made on one machine, resumed on another.

    magic | length of the manifest | manifest (JSON) | for each path: tokens, sealed blobs

Every blob is sealed with the tokens before its end: a file of which anything was changed is refused. A seal tells
damage, not malice: take files only from those whose programs you would run.
"""

import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import BufferedReader, BufferedWriter
from pathlib import Path
from typing import Any

from leftoff.cache.shelf import Item
from leftoff.core import Tokens
from leftoff.disk.blob import Blob
from leftoff.disk.catalog import Catalog
from leftoff.disk.chain import TOKEN_BYTES, as_bytes, as_tokens
from leftoff.disk.errors import BundleError
from leftoff.disk.files import FILE_MODE, BlobFiles
from leftoff.disk.folder import BLOBS
from leftoff.disk.shelf import FileShelf
from leftoff.engine.arena import Arena, view_of
from leftoff.engine.base import Page, Snapshot
from leftoff.engine.errors import BlobError
from leftoff.engine.seal import FINGERPRINT_BYTES, PAGE, SEAL_BYTES, seal, unseal

FORMAT = 1
_MAGIC = b"leftoff bundle\n"
_LENGTH = struct.Struct("<HI")  # of the format, and of the manifest
_PART_FIELDS = ("kind", "start", "end", "nbytes")
_WAIT_S = 600.0


@dataclass(frozen=True)
class Part:
    """One blob of a bundle."""

    kind: int
    start: int
    end: int
    nbytes: int

    @classmethod
    def of(cls, blob: Blob) -> "Part":
        return cls(blob.kind, blob.start, blob.end, blob.nbytes)

    @property
    def file_bytes(self) -> int:
        return SEAL_BYTES + self.nbytes


@dataclass(frozen=True)
class Strand:
    """A path, and what there is on it."""

    num_tokens: int
    parts: list[Part]

    @property
    def file_bytes(self) -> int:
        return sum(part.file_bytes for part in self.parts)


@dataclass(frozen=True)
class Manifest:
    """What a bundle says of itself, before anything was verified. The first strand is the one that was asked for."""

    fingerprint: str
    label: str
    namespace: str
    strands: list[Strand]

    @property
    def num_tokens(self) -> int:
        return self.strands[0].num_tokens

    @property
    def nbytes(self) -> int:
        return sum(strand.num_tokens * TOKEN_BYTES + strand.file_bytes for strand in self.strands)


@dataclass(frozen=True)
class Placed:
    """An item, verified, and the path it lies on."""

    item: Item
    tokens: Tokens


@dataclass(frozen=True)
class _Opened:
    manifest: Manifest
    file: BufferedReader

    def items(self, arena: Arena) -> Iterator[Placed]:
        """In the order of the file."""
        for strand in self.manifest.strands:
            tokens = as_tokens(self.file.read(strand.num_tokens * TOKEN_BYTES))
            for part in strand.parts:
                yield Placed(self._item(part, tokens, arena), tokens)

    def _item(self, part: Part, tokens: Tokens, arena: Arena) -> Item:
        blank: Item = Page(part.start, part.end, part) if part.kind == PAGE else Snapshot(part.end, part)
        blob = Blob.of(blank, self.manifest.namespace, tokens)
        item = unseal(self.file, part.file_bytes, self.manifest.fingerprint, arena, blob.tag)
        blob.check(item)
        return item


def export_bundle(folder: Path, blob: Blob, target: Path) -> Manifest:
    """Everything that is needed to resume at the end of a blob: pages, and the last snapshot."""
    catalog = Catalog.of(folder)
    way = catalog.way_to(blob)
    if not way.is_whole:
        raise BundleError(f"{blob.name} cannot be resumed from: not all that lies before it is on disk any more")
    pages, snapshots = ([b for b in way.blobs if b.is_page is wanted] for wanted in (True, False))
    strands = [(way.tokens, [*pages, *snapshots[-1:]])]
    strands += [(catalog.tokens_to(page), [page]) for page in way.borrowed]
    described = [Strand(int(tokens.size), [*map(Part.of, blobs)]) for tokens, blobs in strands]
    manifest = Manifest(catalog.fingerprint, catalog.label, blob.namespace, described)
    files, arena = BlobFiles(folder / BLOBS, catalog.fingerprint), Arena()
    with _written_whole(target) as file:
        file.write(_head(manifest))
        for tokens, blobs in strands:
            file.write(as_bytes(tokens))
            for part in blobs:
                item = _read(files, part, arena)
                file.write(seal(item, catalog.fingerprint, part.tag))
                file.write(view_of(item.data).data)
    return manifest


def read_manifest(source: Path) -> Manifest:
    with source.open("rb") as file:
        return _open(file, source).manifest


def import_bundle(root: Path, source: Path) -> Manifest:
    """Puts everything on the shelf of the model it was made by; nothing, if anything in it is not as it should be."""
    arena = Arena()
    try:
        with source.open("rb") as file:
            for _ in _open(file, source).items(arena):
                pass
            file.seek(0)
            opened = _open(file, source)
            _shelve(root, opened, arena)
    except BlobError as error:
        raise BundleError(f"{source} cannot be imported: {error}") from error
    return opened.manifest


def _shelve(root: Path, opened: _Opened, arena: Arena) -> None:
    manifest = opened.manifest
    shelf = FileShelf.open(root, manifest.fingerprint, arena, label=manifest.label)
    try:
        for _ in shelf.recall():
            pass
        for placed in opened.items(arena):
            # one at a time: this takes as long as the disk, and little memory
            taken = shelf.put(placed.item, manifest.namespace, placed.tokens)
            if taken is None or not shelf.flush(_WAIT_S) or taken in shelf.settle():
                raise BundleError(f"not all of it could be written to {shelf.path}")
    finally:
        shelf.close(_WAIT_S)


def _read(files: BlobFiles, blob: Blob, arena: Arena) -> Item:
    try:
        return files.read(blob, arena)
    except (BlobError, FileNotFoundError) as error:
        raise BundleError(f"{files.path(blob.name)}: {error}; `leftoff cache verify` checks all") from error


@contextmanager
def _written_whole(target: Path) -> Iterator[BufferedWriter]:
    """A file that is there when it is complete, or not at all."""
    unfinished = target.with_name(target.name + ".new")
    try:
        with unfinished.open("wb") as file:
            unfinished.chmod(FILE_MODE)
            yield file
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _head(manifest: Manifest) -> bytes:
    text = json.dumps(asdict(manifest)).encode()
    return _MAGIC + _LENGTH.pack(FORMAT, len(text)) + text


def _open(file: BufferedReader, source: Path) -> _Opened:
    size = source.stat().st_size
    head = file.read(len(_MAGIC) + _LENGTH.size)
    if head[: len(_MAGIC)] != _MAGIC or len(head) < len(_MAGIC) + _LENGTH.size:
        raise BundleError(f"{source} is not an exported cache: it begins with {head[:15]!r}")
    version, length = _LENGTH.unpack(head[len(_MAGIC) :])
    if version != FORMAT:
        raise BundleError(f"{source} is of format {version}: this leftoff reads format {FORMAT}")
    try:
        manifest = _manifest(json.loads(file.read(min(length, size))))
    except (ValueError, TypeError, KeyError) as error:
        raise BundleError(f"{source} is damaged: its manifest cannot be read") from error
    expected = file.tell() + manifest.nbytes
    if size != expected:
        raise BundleError(f"{source} is damaged: it has {size} bytes and should have {expected}")
    return _Opened(manifest, file)


def _manifest(content: dict[str, Any]) -> Manifest:
    strands = [_strand(strand) for strand in content["strands"]]
    fingerprint = str(content["fingerprint"])
    if len(bytes.fromhex(fingerprint)) != FINGERPRINT_BYTES or not strands:
        raise ValueError("no fingerprint, or nothing in it")
    return Manifest(fingerprint, str(content["label"]), str(content["namespace"]), strands)


def _strand(content: dict[str, Any]) -> Strand:
    num_tokens = _count(content["num_tokens"])
    parts = [Part(*(_count(part[name]) for name in _PART_FIELDS)) for part in content["parts"]]
    if any(not part.start <= part.end <= num_tokens for part in parts):
        raise ValueError("a part outside of its tokens")
    return Strand(num_tokens, parts)


def _count(value: object) -> int:
    if not isinstance(value, int) or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value
