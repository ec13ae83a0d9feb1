"""How much RAM and disk the cache uses where the settings leave it open: what the machine can spare, up to a need."""

import threading
import weakref
from collections.abc import Callable
from pathlib import Path

from leftoff.blobs.writer import QueueLimit
from leftoff.cache.capacity import Capacity
from leftoff.disk.folder import is_of_model
from leftoff.disk.tools.models import ClosedFolder, Pruned, folders, models
from leftoff.engine.engine import LlamaEngine
from leftoff.engine.memory.base import Memory

GIB = 1 << 30

# A need beyond which more is hardly ever used: so many conversations of such a length.
_CONVERSATION_TOKENS = 32 << 10
_CONVERSATIONS_IN_RAM = 64
_CONVERSATIONS_ON_DISK = 256
_SNAPSHOTS = 8  # of a conversation, about

_PART_OF_RAM = 0.5  # of what is available once the model is loaded: other programs start and grow
_PART_OF_DISK = 0.25  # of what is free
_USUAL_BYTES = 4 * GIB  # enough for a small model and many users, if the machine has it
_MIN_RAM_BYTES = GIB // 4

_PICTURE_PART = 8  # one over the part of a budget for the embeddings of pictures
_QUEUE_PART = 8  # one over the part of the RAM budget that may wait to be written to disk
_QUEUE_BYTES = GIB // 2, 4 * GIB  # at least, at most


class Capacities:
    """The bytes of RAM, and of the disk under each cache folder, that the caches of all models share.

    As with a single model, the bytes that wait to be written and one page-locked area come on top. The areas of further
    models that are awake are part of the RAM, as long as half of it is left.
    """

    def __init__(self, ram_bytes: int) -> None:
        self.ram = Capacity(ram_bytes)
        self.queue = QueueLimit(queue_budget(ram_bytes))
        self.ram.beside = self._locked_bytes
        self._engines: tuple[weakref.ref[LlamaEngine], ...] = ()
        self._disks: dict[Path, Disk] = {}
        self._lock = threading.Lock()

    def add(self, engine: LlamaEngine) -> None:
        """Counts the page-locked memory of an engine."""
        with self._lock:
            self._engines = (*(each for each in self._engines if each() is not None), weakref.ref(engine))

    def _locked_bytes(self) -> int:
        areas = [engine.locked_bytes for each in self._engines if (engine := each()) is not None]
        return min(sum(areas) - max(areas, default=0), self.ram.nbytes // 2)

    def disk(self, root: Path) -> "Disk":
        """The disk under a cache folder. What models that are not open have there counts too."""
        with self._lock:
            if root not in self._disks:
                self._disks[root] = Disk(root)
            return self._disks[root]


class Disk:
    """The disk under one cache folder."""

    def __init__(self, root: Path) -> None:
        self.capacity = Capacity(0)
        self._root = root
        self._open: set[Path] = set()
        self._closed = {usage.path: ClosedFolder(usage.path, self.capacity) for usage in models(root)}
        self.capacity.join(*self._closed.values())

    def opening(self, folder: Path) -> list[ClosedFolder]:
        """A model is about to be opened: what it has on disk is not evicted or deleted from here any more."""
        self._open.add(folder)
        left = [self._closed.pop(folder)] if folder in self._closed else []
        for each in left:
            with each.lock:
                each.is_kept = True
        return left

    def forget(self, model: Path, is_meant: Callable[[str], bool]) -> list[Pruned]:
        """Deletes what a model has for the namespaces that are meant, under all settings but those it is open with."""
        closed = [each for each in folders(self._root) if each not in self._open and is_of_model(each, model)]
        return [(self._closed.get(each) or ClosedFolder(each, self.capacity)).forget(is_meant) for each in closed]

    def closed(self, folder: Path) -> None:
        """A model is not open any more: what it has left counts, if others are."""
        self._open.discard(folder)
        if self.capacity.num_holders:
            self._closed[folder] = ClosedFolder(folder, self.capacity)
            self.capacity.join(self._closed[folder])


def conversation_bytes(memory: Memory, num_tokens: int) -> int:
    """About what a conversation takes: its pages, and snapshots, of which at least two but no more bytes than pages."""
    kind = memory.kind
    page_bytes = memory.page_bytes(num_tokens) if kind.has_pages else 0
    snapshot_bytes = memory.snapshot_bytes(num_tokens) if kind.has_snapshots else 0
    return page_bytes + min(_SNAPSHOTS * snapshot_bytes, max(page_bytes, 2 * snapshot_bytes))


def ram_budget(memory: Memory, available_bytes: int) -> int:
    """The bytes of RAM for the cache of a model that is loaded."""
    need = max(_USUAL_BYTES, _CONVERSATIONS_IN_RAM * _usual_conversation(memory))
    return max(_MIN_RAM_BYTES, min(need, int(_PART_OF_RAM * available_bytes)))


def disk_budget(memory: Memory, free_bytes: int) -> int:
    """The bytes of disk for the cache, where `free_bytes` are free or are the cache's already."""
    need = max(_USUAL_BYTES, _CONVERSATIONS_ON_DISK * _usual_conversation(memory))
    return min(need, max(int(_PART_OF_DISK * free_bytes), min(_USUAL_BYTES, free_bytes // 2)))


def queue_budget(ram_bytes: int) -> int:
    """The bytes that may wait to be written to disk: while they do, RAM cannot free them."""
    least, most = _QUEUE_BYTES
    return min(most, max(least, ram_bytes // _QUEUE_PART))


def picture_budget(nbytes: int) -> int:
    """The most of a cache's bytes, of RAM or disk, that embeddings of pictures may take.

    Of a picture they have about an eighth of the bytes that attention keeps of it.
    """
    return nbytes // _PICTURE_PART


def _usual_conversation(memory: Memory) -> int:
    return conversation_bytes(memory, min(_CONVERSATION_TOKENS, memory.num_cells))
