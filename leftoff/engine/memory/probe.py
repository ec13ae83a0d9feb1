"""Finds the memory kind of a model by trying it: decodes a few tokens, saves, loads and compares byte for byte.

What the model's metadata says is only a candidate. A kind is used if a round trip through pages and snapshot returns
the same bytes; a model that fails it is treated as *opaque*. Where llama.cpp keeps more than it saves, as for a hybrid
with an indexer or for all that we know of an opaque memory, what goes on after loading is compared as well.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from leftoff.engine.batch import BatchPart
from leftoff.engine.binding.abi import PARTIAL_ONLY
from leftoff.engine.context import Context
from leftoff.engine.errors import BlobError, EngineError
from leftoff.engine.memory.arena import Raw
from leftoff.engine.memory.base import MemoryKind
from leftoff.engine.memory.compressed import CompressedMemory
from leftoff.engine.memory.compressed_layout import learn_compressed_layout
from leftoff.engine.memory.layout import (
    HEADER_BYTES,
    Layout,
    learn_layout,
    learn_layout_around,
    learn_window_layout,
)
from leftoff.engine.memory.llama_memory import LlamaMemory, SnapshotSize
from leftoff.engine.memory.paged import PagedMemory
from leftoff.engine.memory.whole import WholeMemory
from leftoff.engine.memory.windows import Windows
from leftoff.types import Logits, Tokens

_HALF = 8
_WHOLE = 2 * _HALF
_MAX_NOISE = 0.5  # of logits beside another sequence: of their deviation. Rounding makes a few thousandths


@dataclass(frozen=True)
class _States:
    """State of one sequence after 8 and after 16 tokens: the whole, and the rest that cannot be cut back.

    `mixes_sequences` says that sequences act on each other where a batch has several tokens of both.
    """

    empty_rest: Raw
    half_whole_bytes: int
    half_rest_bytes: int
    whole: Raw
    rest: Raw
    mixes_sequences: bool


def probe_memory(context: Context, fingerprint: str) -> LlamaMemory:
    """The memory of this context, of the first kind that passes the round trip."""
    states = _observe(context)
    for memory in _candidates(context, fingerprint, states):
        if _round_trip(context, memory, states) and (not memory.may_lose or _goes_on(context, memory)):
            context.clear()
            return memory
    raise EngineError(
        f"{context.model.path}: this build of llama.cpp does not load the state of this model exactly as it was saved: "
        "try a newer one (leftoff engine)"
    )


def _candidates(context: Context, fingerprint: str, states: _States) -> Iterator[LlamaMemory]:
    if context.model.is_recurrent:
        size = SnapshotSize(states.whole.nbytes, 0.0, 0)
        yield WholeMemory(context, MemoryKind.RECURRENT, fingerprint, size)
    else:
        for reads_beginnings in (True, False):
            memory = _paged(context, fingerprint, states, reads_beginnings=reads_beginnings)
            if memory is not None:
                yield memory
        if (compressed := _compressed(context, fingerprint, states)) is not None:
            yield compressed
    size = _snapshot_size(states.half_whole_bytes, states.whole.nbytes, 0)
    # One sequence at a time: memories of this kind are known to mix sequences, by clearing parts of all of them on a
    # load, or by selecting what to attend to among the cells of all.
    yield WholeMemory(context, MemoryKind.OPAQUE, fingerprint, size, num_sequences=1)


def _observe(context: Context) -> _States:
    context.clear()
    empty_rest = context.get_state(0, PARTIAL_ONLY).view
    alone = context.logits(_decode(context, 0, 0, _HALF)).copy()
    half_whole, half_rest = context.state_bytes(0), context.state_bytes(0, PARTIAL_ONLY)
    _decode(context, 0, _HALF, _WHOLE)
    whole, rest = context.get_state(0).view, context.get_state(0, PARTIAL_ONLY).view
    return _States(empty_rest, half_whole, half_rest, whole, rest, _mixes_sequences(context, alone))


def _mixes_sequences(context: Context, alone: Logits) -> bool:
    """Whether the first tokens make other logits beside those of another sequence: so they do in llama.cpp's PLaMo 2.

    It is a hybrid, for which llama.cpp computes as many tokens of each sequence together.
    """
    if not context.model.is_hybrid or context.settings.num_sequences == 1:
        return False
    context.clear()
    first, second = _tokens(context, 0, _HALF), _tokens(context, _HALF, _WHOLE)
    row, _ = context.fill_batch(BatchPart(0, first, 0), BatchPart(1, second, 0))
    context.decode()
    context.wait()
    noise = np.sqrt(np.mean((context.logits(row) - alone) ** 2))
    return bool(noise > _MAX_NOISE * alone.std())


def _decode(context: Context, seq: int, start: int, end: int) -> int:
    """Decodes tokens of a sequence; returns the row of the last."""
    (row,) = context.fill_batch(BatchPart(seq, _tokens(context, start, end), start))
    context.decode()
    context.wait()
    return row


def _tokens(context: Context, start: int, end: int) -> Tokens:
    return (np.arange(start, end) % context.model.vocabulary.size).astype(np.int32)


def _paged(context: Context, fingerprint: str, states: _States, *, reads_beginnings: bool) -> LlamaMemory | None:
    """Memory of kind attention, hybrid or window, if the state has an attention section of a known layout."""
    model = context.model
    # Where everything can be cut back, builds of llama.cpp up to 0.6 save it all, and later ones save nothing.
    if np.array_equal(states.whole, states.rest) or states.rest.nbytes == HEADER_BYTES:
        kind, section_end = MemoryKind.ATTENTION, states.whole.nbytes
        empty_rest = states.empty_rest[:HEADER_BYTES]
    else:
        kind = MemoryKind.HYBRID if model.is_hybrid else MemoryKind.WINDOW
        section_end = states.whole.nbytes - (states.rest.nbytes - HEADER_BYTES)
        empty_rest = states.empty_rest
    layout: Layout | None = learn_layout(states.whole, _WHOLE, section_end)
    if layout is None and kind is MemoryKind.HYBRID and not reads_beginnings:
        rests = (states.rest[HEADER_BYTES:].tobytes(), empty_rest[HEADER_BYTES:].tobytes())
        layout = learn_layout_around(states.whole, _WHOLE, *rests)
    if layout is None:
        return None
    layout = replace(layout, is_refused_headless=_is_refused_headless(context, layout, states.whole))
    size = _snapshot_size(states.half_rest_bytes, states.rest.nbytes, model.window)
    windows = None
    if model.window and kind.has_snapshots:  # some models name a window that their layers do not have
        window_layout = learn_window_layout(states.rest, _WHOLE, round(size.bytes_per_token))
        if window_layout is None:
            return None
        windows = Windows(context, window_layout)
    return PagedMemory(
        context,
        kind,
        fingerprint,
        size,
        layout,
        empty_rest,
        windows,
        reads_beginnings=reads_beginnings,
        num_sequences=1 if states.mixes_sequences else None,
    )


def _is_refused_headless(context: Context, layout: Layout, whole: Raw) -> bool:
    """Whether the library refuses a state whose first head is wrong."""
    headless = whole.copy()
    layout.first_head(headless, _WHOLE)[:] = 0
    try:
        with context.model.library.log.collected():
            context.set_state(0, headless)
    except BlobError:
        return True
    return False


def _compressed(context: Context, fingerprint: str, states: _States) -> LlamaMemory | None:
    layout = learn_compressed_layout(states.whole, states.rest, _WHOLE)
    # llama.cpp does not tell the length of a window that a sequence cannot be cut back within
    window = context.model.number("attention.sliding_window")
    if layout is None or not window:
        return None
    streams_bytes = states.rest.nbytes - layout.rest_bytes(states.rest)
    size = _snapshot_size(states.half_rest_bytes - streams_bytes, states.rest.nbytes - streams_bytes, 0)
    whole = SnapshotSize(size.at(window), 0.0, 0)
    return CompressedMemory(context, fingerprint, whole, layout, window)


def _snapshot_size(half_bytes: int, whole_bytes: int, window: int) -> SnapshotSize:
    per_token = (whole_bytes - half_bytes) / (_WHOLE - _HALF)
    return SnapshotSize(round(half_bytes - per_token * _HALF), per_token, window - 1 if window else 0)


def _round_trip(context: Context, memory: LlamaMemory, states: _States) -> bool:
    """Saves two pages and a snapshot, drops the sequence, restores it, and compares the state bytes.

    Some builds clear parts of all sequences when they load one, where each has a stream of its own.
    """
    seq, middle = 0, _HALF - 3
    beside = 1 if isinstance(memory, CompressedMemory) and memory.num_sequences > 1 else None
    try:
        _refill(context, memory, seq)
        if beside is not None:
            _decode(context, beside, 0, _WHOLE)
            stands = context.get_state(beside).view
        pages = []
        if memory.kind.has_pages:
            pages = [memory.save_page(seq, *span).whole() for span in ((0, middle), (middle, _WHOLE))]
        snapshot = memory.save_snapshot(seq) if memory.kind.has_snapshots else None
        memory.drop(seq)
        memory.restore(seq, _WHOLE, pages=pages, snapshot=snapshot)
        same = np.array_equal(context.get_state(seq).view, states.whole)
        if beside is not None:
            same = same and np.array_equal(context.get_state(beside).view, stands)
        memory.drop(seq)
    except EngineError:
        return False
    return same


def _goes_on(context: Context, memory: LlamaMemory) -> bool:
    """Whether a sequence that was loaded computes the same as one that was never away."""
    seq = 0
    _refill(context, memory, seq)
    pages = [memory.save_page(seq, 0, _WHOLE).whole()] if memory.kind.has_pages else []
    snapshot = memory.save_snapshot(seq)
    _decode(context, seq, _WHOLE, _WHOLE + _HALF)
    gone_on = context.get_state(seq).view
    memory.clear()
    memory.restore(seq, _WHOLE, pages=pages, snapshot=snapshot)
    _decode(context, seq, _WHOLE, _WHOLE + _HALF)
    same = np.array_equal(context.get_state(seq).view, gone_on)
    memory.drop(seq)
    return same


def _refill(context: Context, memory: LlamaMemory, seq: int) -> None:
    context.clear()
    for start in (0, _HALF):
        _decode(context, seq, start, start + _HALF)
        memory.extend({seq: _HALF})
