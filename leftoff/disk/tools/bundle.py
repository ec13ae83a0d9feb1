"""A beginning of prompts as one file, to be shipped with an application: made on one machine, resumed on another.

    magic | length of the manifest | manifest (JSON) | for each path: tokens, sealed blobs

Every blob is sealed with the tokens before its end: a file of which anything was changed is refused. A seal tells
damage, not malice: take files only from those whose programs you would run. No name in it becomes the name of a file,
and whatever it says, a file that is refused leaves nothing behind.
"""

import json
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from io import BufferedReader
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Protocol

from leftoff.cache.blob_store import Item, Record
from leftoff.disk.blob import Blob
from leftoff.disk.errors import BundleError
from leftoff.disk.files import BlobFiles, make_folder
from leftoff.disk.folder import BLOBS, model_folder
from leftoff.disk.path_hash import TOKEN_BYTES, as_bytes, as_tokens
from leftoff.disk.problems import describe
from leftoff.disk.store import FileBlobStore
from leftoff.disk.tools.catalog import Catalog
from leftoff.disk.tools.manifest import Manifest, Part, Strand, parse_manifest
from leftoff.disk.tools.models import remove_model
from leftoff.engine.errors import BlobError
from leftoff.engine.memory.arena import Arena, view_of
from leftoff.engine.memory.base import Page, Snapshot
from leftoff.engine.seal import PAGE, seal, unseal
from leftoff.types import Tokens

FORMAT = 1
_MAGIC = b"leftoff bundle\n"
_LENGTH = struct.Struct("<HI")  # of the format, and of the manifest
_WAIT_S = 600.0
# More than any real bundle has: a file that says so is made to fill the memory, and need not be large to say it.
_LARGEST_MANIFEST = 16 << 20
_LARGEST_PART = 0.5  # of this machine's memory


class _Writable(Protocol):
    def write(self, content: bytes | memoryview, /) -> int: ...


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
    with _regular(source) as file:
        return _open(file, source).manifest


def _regular(source: Path) -> BufferedReader:
    """Opened without waiting for whoever may write to a pipe of that name."""
    fd = os.open(source, os.O_RDONLY | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise BundleError(f"{source} is no file: name one that `leftoff cache export` wrote")
    return os.fdopen(fd, "rb")


def import_bundle(root: Path, source: Path) -> Manifest:
    """Puts everything on the shelf of the model it was made by; nothing, if anything in it is not as it should be."""
    arena = Arena()
    try:
        with _regular(source) as file:
            for _ in _open(file, source).items(arena):
                pass
            file.seek(0)
            opened = _open(file, source)
            _shelve(root, opened, arena)
    except BlobError as error:
        raise BundleError(f"{source} cannot be imported: {error}") from error
    return opened.manifest


def _shelve(root: Path, opened: _Opened, arena: Arena) -> None:
    folder = model_folder(root, opened.manifest.fingerprint)
    is_new = not folder.exists()
    label = opened.manifest.label if is_new else ""  # a model that is known keeps its name
    try:
        _put_all(root, folder, opened, arena, label)
    except BaseException:
        if is_new and folder.exists():
            remove_model(folder)
        raise


def _put_all(root: Path, folder: Path, opened: _Opened, arena: Arena, label: str) -> None:
    manifest = opened.manifest
    try:
        make_folder(folder / BLOBS)
        BlobFiles(folder / BLOBS, manifest.fingerprint).check_room(manifest.nbytes)
    except OSError as error:
        raise BundleError(describe(error, folder)) from error
    shelf = FileBlobStore.open(root, manifest.fingerprint, arena, label=label)
    try:
        before = {_record_name(item) for kept in shelf.recall() for item in kept.items}
        with _all_or_none(shelf, before) as put:
            for placed in opened.items(arena):
                # one at a time: this takes as long as the disk, and little memory
                taken = shelf.put(placed.item, manifest.namespace, placed.tokens)
                if taken is not None:
                    put.append(taken)
                if taken is None or not shelf.flush(_WAIT_S) or taken in shelf.settle():
                    raise BundleError(f"not all of it could be written to {shelf.path}")
    finally:
        shelf.close(_WAIT_S)


@contextmanager
def _all_or_none(shelf: FileBlobStore, before: set[str]) -> Iterator[list[Record]]:
    """What was put is removed again after an error, but for what was there before."""
    put: list[Record] = []
    try:
        yield put
    except BaseException:
        for record in put:
            if record.name not in before:
                shelf.remove(record)
        raise


def _record_name(item: Item) -> str:
    assert isinstance(item.data, Record)
    return item.data.name


def _read(files: BlobFiles, blob: Blob, arena: Arena) -> Item:
    try:
        return files.read(blob, arena)
    except (BlobError, FileNotFoundError) as error:
        raise BundleError(f"{files.path(blob.name)}: {error}; `leftoff cache verify` checks all") from error


@contextmanager
def _written_whole(target: Path) -> Iterator["_Writable"]:
    """A file that is there when it is complete, or not at all. Its name until then is nobody else's."""
    with NamedTemporaryFile(dir=target.parent, prefix=f"{target.name}.", suffix=".new", delete=False) as file:
        try:
            yield file
            file.flush()
            Path(file.name).replace(target)
        except BaseException:
            Path(file.name).unlink()
            raise


def _head(manifest: Manifest) -> bytes:
    text = json.dumps(asdict(manifest)).encode()
    return _MAGIC + _LENGTH.pack(FORMAT, len(text)) + text


def _open(file: BufferedReader, source: Path) -> _Opened:
    size = os.fstat(file.fileno()).st_size
    head = file.read(len(_MAGIC) + _LENGTH.size)
    if head[: len(_MAGIC)] != _MAGIC or len(head) < len(_MAGIC) + _LENGTH.size:
        raise BundleError(f"{source} is not an exported cache: it begins with {head[:15]!r}")
    version, length = _LENGTH.unpack(head[len(_MAGIC) :])
    if version != FORMAT:
        raise BundleError(f"{source} is of format {version}: this leftoff reads format {FORMAT}")
    if length > _LARGEST_MANIFEST:
        raise BundleError(f"{source} has a manifest of {length:,} bytes: {_LARGEST_MANIFEST:,} is the most")
    try:
        manifest = parse_manifest(json.loads(file.read(length)))
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise BundleError(f"{source} is damaged: its manifest cannot be read") from error
    expected = file.tell() + manifest.nbytes
    if size != expected:
        raise BundleError(f"{source} is damaged: it has {size} bytes and should have {expected}")
    _check_memory(manifest, source)
    return _Opened(manifest, file)


def _check_memory(manifest: Manifest, source: Path) -> None:
    """A part is held in memory while it is verified."""
    largest = max(part.nbytes for strand in manifest.strands for part in strand.parts)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if largest > _LARGEST_PART * memory:
        raise BundleError(f"{source} has a part of {largest:,} bytes: this machine's memory is {memory:,}")
