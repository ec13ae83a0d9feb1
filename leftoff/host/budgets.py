"""How much RAM and disk the cache uses where the settings leave it open: what the machine can spare, up to a need."""

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

_QUEUE_PART = 8  # one over the part of the RAM budget that may wait to be written to disk
_QUEUE_BYTES = GIB // 2, 4 * GIB  # at least, at most


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


def _usual_conversation(memory: Memory) -> int:
    return conversation_bytes(memory, min(_CONVERSATION_TOKENS, memory.num_cells))
