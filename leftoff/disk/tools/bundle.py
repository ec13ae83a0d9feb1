"""A prefix of prompts as one file, to ship with an application: exported on one machine, resumed on another.

    magic | format, length of the manifest | manifest (JSON) | for each path: tokens, sealed blobs

Every blob is sealed with the hash of the tokens before its end, so that a file in which anything changed is refused.
A seal detects damage, not malice: import files only from people whose programs you would run. Still, nothing in a file
is believed that no export would have written, no name in it becomes a file name, and a refused file leaves nothing.
"""

import os
import stat
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedReader
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Annotated

import msgspec

from leftoff.blobs.blob import Blob, Write
from leftoff.blobs.path_hash import TOKEN_BYTES, HashedPath, as_bytes, as_tokens
from leftoff.blobs.store import MediumBlobStore
from leftoff.cache.blob_store import Item, Record
from leftoff.disk.errors import BundleError, describe
from leftoff.disk.files import BlobFiles, make_folder
from leftoff.disk.folder import BLOBS, model_folder
from leftoff.disk.medium import FolderMedium, open_folder
from leftoff.disk.tools.catalog import Catalog
from leftoff.disk.tools.models import remove_model
from leftoff.engine.errors import BlobError
from leftoff.engine.memory.arena import Arena, view_of
from leftoff.engine.seal import FINGERPRINT_BYTES, PAGE, SEAL_BYTES, SNAPSHOT, WINDOW_PAGE, seal, unseal
from leftoff.machine import physical_ram

FORMAT = 1
_MAGIC = b"leftoff bundle\n"
_LENGTH = struct.Struct("<HI")  # format, length of the manifest
_WAIT_S = 600.0
# More than any real bundle has. A small file could claim such sizes, in order to fill the memory.
_MAX_MANIFEST_BYTES = 16 << 20
_MAX_TOKENS = 1 << 24
_MAX_NAME_BYTES = 200  # of a model or a namespace
_MAX_PART = 0.5  # of this machine's memory

Count = Annotated[int, msgspec.Meta(ge=0)]
Fingerprint = Annotated[str, msgspec.Meta(pattern=rf"^[0-9a-f]{{{2 * FINGERPRINT_BYTES}}}\Z")]


@dataclass(frozen=True)
class Part:
    """One blob of a bundle."""

    kind: Count
    start: Count
    end: Count
    nbytes: Count

    @classmethod
    def of(cls, blob: Blob) -> "Part":
        return cls(blob.kind, blob.start, blob.end, blob.nbytes)

    @property
    def file_bytes(self) -> int:
        return SEAL_BYTES + self.nbytes


@dataclass(frozen=True)
class Strand:
    """A path of tokens, and the blobs on it."""

    num_tokens: Count
    parts: list[Part]

    @property
    def file_bytes(self) -> int:
        return sum(part.file_bytes for part in self.parts)


@dataclass(frozen=True)
class Manifest:
    """The table of contents of a bundle. The first strand is the exported path; the others have pages it borrows."""

    fingerprint: Fingerprint
    label: str
    namespace: str
    strands: list[Strand]

    @property
    def num_tokens(self) -> int:
        return self.strands[0].num_tokens

    @property
    def nbytes(self) -> int:
        return sum(strand.num_tokens * TOKEN_BYTES + strand.file_bytes for strand in self.strands)


_decode_manifest = msgspec.json.Decoder(Manifest).decode


@dataclass(frozen=True)
class _OpenBundle:
    """A bundle whose manifest was read."""

    manifest: Manifest
    file: BufferedReader

    def read_all(self, arena: Arena) -> Iterator[Write]:
        """Reads and verifies the blobs, in the order of the file."""
        for strand in self.manifest.strands:
            tokens = as_tokens(self.file.read(strand.num_tokens * TOKEN_BYTES))
            path = HashedPath(self.manifest.namespace, tokens)
            for part in strand.parts:
                yield self._read(part, path, arena)

    def _read(self, part: Part, path: HashedPath, arena: Arena) -> Write:
        blob = Blob.at(part.kind, part.start, part.end, part.nbytes, path)
        item = unseal(self.file, part.file_bytes, self.manifest.fingerprint, arena, blob.tag)
        blob.check(item)
        return Write(blob, item, path)


def export_bundle(folder: Path, blob: Blob, target: Path) -> Manifest:
    """Writes everything that is needed to resume at the end of a blob: pages, and the last snapshot with its window."""
    catalog = Catalog.of(folder)
    path = catalog.path_to(blob)
    if not path.is_whole:
        raise BundleError(f"{blob.name} cannot be resumed from: not all that lies before it is on disk any more")
    pages = [each for each in path.blobs if each.is_page]
    strands = [(path.tokens, [*pages, *_last_snapshot(path.blobs)])]
    strands += [(catalog.tokens_to(page), [page]) for page in path.borrowed]
    described = [Strand(int(tokens.size), [*map(Part.of, blobs)]) for tokens, blobs in strands]
    manifest = Manifest(catalog.fingerprint, catalog.label, blob.namespace, described)
    files, arena = BlobFiles(folder / BLOBS, catalog.fingerprint), Arena()
    with _written_whole(target) as file:
        text = msgspec.json.encode(manifest)
        file.write(_MAGIC + _LENGTH.pack(FORMAT, len(text)) + text)
        for tokens, blobs in strands:
            file.write(as_bytes(tokens))
            for part in blobs:
                item = _read_blob(files, part, arena)
                file.write(seal(item, catalog.fingerprint, part.tag))
                file.write(view_of(item.data).data)
    return manifest


def read_manifest(source: Path) -> Manifest:
    """The manifest of a bundle, verified."""
    with _open_regular(source) as file:
        return _open_bundle(file, source).manifest


def import_bundle(root: Path, source: Path) -> Manifest:
    """Stores everything in the folder of the model it was made by, or nothing if any of it is wrong."""
    arena = Arena()
    try:
        with _open_regular(source) as file:
            for _ in _open_bundle(file, source).read_all(arena):
                pass
            file.seek(0)
            bundle = _open_bundle(file, source)
            _store(root, bundle, arena)
    except BlobError as error:
        raise BundleError(f"{source} cannot be imported: {error}") from error
    return bundle.manifest


def _store(root: Path, bundle: _OpenBundle, arena: Arena) -> None:
    folder = model_folder(root, bundle.manifest.fingerprint)
    is_new = not folder.exists()
    label = bundle.manifest.label if is_new else ""  # a model that is known keeps its name
    try:
        _put_all(root, folder, bundle, arena, label)
    except BaseException:
        if is_new and folder.exists():
            remove_model(folder)
        raise


def _put_all(root: Path, folder: Path, bundle: _OpenBundle, arena: Arena, label: str) -> None:
    manifest = bundle.manifest
    try:
        make_folder(folder / BLOBS)
        BlobFiles(folder / BLOBS, manifest.fingerprint).check_room(manifest.nbytes)
    except OSError as error:
        raise BundleError(describe(error, folder)) from error
    store = open_folder(root, manifest.fingerprint, arena, label=label)
    try:
        with _all_or_none(store) as records:
            for write in bundle.read_all(arena):
                # one at a time: this takes as long as the disk, and little memory
                record = store.put(write.item, manifest.namespace, write.path.tokens)
                if record is not None:
                    records.append(record)
                if record is None or not store.flush(_WAIT_S) or record in store.take_lost():
                    raise BundleError(f"not all of it could be written to {store.medium.path}")
    finally:
        store.close(_WAIT_S)


@contextmanager
def _all_or_none(store: MediumBlobStore[FolderMedium]) -> Iterator[list[Record]]:
    """After an error, removes the records that the caller has listed, but for those that were stored before."""
    before = {item.data for path in store.stored_paths() for item in path.items}
    records: list[Record] = []
    try:
        yield records
    except BaseException:
        for record in records:
            if record not in before:
                store.remove(record)
        raise


def _read_blob(files: BlobFiles, blob: Blob, arena: Arena) -> Item:
    try:
        return files.read(blob, arena)
    except (BlobError, FileNotFoundError) as error:
        raise BundleError(f"{files.path(blob.name)}: {error}; `leftoff cache verify` checks all") from error


def _last_snapshot(blobs: Sequence[Blob]) -> Iterator[Blob]:
    """The last snapshot of a path, and before it the window pages that follow each other up to it, the longest ones."""
    snapshot = next((blob for blob in reversed(blobs) if blob.is_snapshot), None)
    if snapshot is None:
        return
    ends = {blob.end: blob for blob in reversed(blobs) if blob.is_window_page}
    page = ends.get(snapshot.end)
    while page is not None:
        yield page
        page = ends.get(page.start)
    yield snapshot


@contextmanager
def _written_whole(target: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name when it is complete, or not at all."""
    with NamedTemporaryFile(dir=target.parent, prefix=f"{target.name}.", suffix=".new", delete=False) as file:
        try:
            yield file
            file.flush()
            Path(file.name).replace(target)
        except BaseException:
            Path(file.name).unlink()
            raise


# --- reading a file that anybody may have made


def _open_regular(source: Path) -> BufferedReader:
    """Opens a file, without blocking on a pipe of that name."""
    fd = os.open(source, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise BundleError(f"{source} is no file: name one that `leftoff cache export` wrote")
    return os.fdopen(fd, "rb")


def _open_bundle(file: BufferedReader, source: Path) -> _OpenBundle:
    size = os.fstat(file.fileno()).st_size
    head = file.read(len(_MAGIC) + _LENGTH.size)
    if head[: len(_MAGIC)] != _MAGIC or len(head) < len(_MAGIC) + _LENGTH.size:
        raise BundleError(f"{source} is not an exported cache: name one that `leftoff cache export` wrote")
    version, length = _LENGTH.unpack(head[len(_MAGIC) :])
    if version != FORMAT:
        raise BundleError(f"{source} is of format {version}: this leftoff reads format {FORMAT}")
    if length > _MAX_MANIFEST_BYTES:
        raise BundleError(f"{source} has a manifest of {length:,} bytes: {_MAX_MANIFEST_BYTES:,} is the most")
    try:
        manifest = _checked(_decode_manifest(file.read(length)))
    except (ValueError, RecursionError) as error:
        raise BundleError(f"{source} is damaged: its manifest cannot be read") from error
    expected = file.tell() + manifest.nbytes
    if size != expected:
        raise BundleError(f"{source} is damaged: it has {size} bytes and should have {expected}")
    _check_memory(manifest, source)
    return _OpenBundle(manifest, file)


def _check_memory(manifest: Manifest, source: Path) -> None:
    """A part is held in memory while it is verified."""
    largest = max(part.nbytes for strand in manifest.strands for part in strand.parts)
    memory = physical_ram()
    if largest > _MAX_PART * memory:
        raise BundleError(f"{source} has a part of {largest:,} bytes: this machine's memory is {memory:,}")


def _checked(manifest: Manifest) -> Manifest:
    """Raises `ValueError` for anything else that no export would have written."""
    for name in (manifest.label, manifest.namespace):
        if len(name.encode()) > _MAX_NAME_BYTES or not name.isprintable():
            raise ValueError(f"{name!r} is no name")
    if not manifest.strands or not all(strand.parts for strand in manifest.strands):
        raise ValueError("nothing in it")
    for strand in manifest.strands:
        if strand.num_tokens > _MAX_TOKENS or not all(_is_sound(part, strand.num_tokens) for part in strand.parts):
            raise ValueError("a part outside of its tokens")
        if len({(part.kind, part.start, part.end) for part in strand.parts}) < len(strand.parts):
            raise ValueError("a part that is there twice")
    return manifest


def _is_sound(part: Part, num_tokens: int) -> bool:
    is_page = part.kind in (PAGE, WINDOW_PAGE) and part.start < part.end
    is_snapshot = part.kind == SNAPSHOT and 0 < part.start == part.end
    return (is_page or is_snapshot) and part.end <= num_tokens
