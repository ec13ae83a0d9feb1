"""Joins pages into one state that llama.cpp loads in one call, by several threads where state moves to a GPU."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from leftoff.engine.memory.arena import Buffer, Raw
from leftoff.engine.memory.base import PagePart
from leftoff.engine.memory.layout import Layout
from leftoff.engine.memory.staging import Staging


@dataclass(frozen=True)
class Join:
    """A state in memory for transfers, which threads may still write to."""

    num_tokens: int
    _state: Buffer
    _copying: Sequence[Future[None]]

    def state(self) -> Raw:
        """Waits until all of it is written."""
        for future in self._copying:
            future.result()
        return self._state.view


def begin_join(staging: Staging, layout: Layout, parts: Sequence[PagePart], rest: Raw) -> Join:
    """Starts to write one section with the cells of all parts, and `rest` behind it."""
    num_tokens = sum(part.num_tokens for part in parts)
    section = layout.section_end(num_tokens)
    state = staging.take(section + rest.nbytes)
    layout.write_frame(state.view, num_tokens)
    state.view[section:] = rest
    jobs = [
        partial(layout.copy_parts, share, state.view, num_tokens, share[0].start - parts[0].start)
        for share in _shares(parts, max(1, staging.num_threads))
    ]
    return Join(num_tokens, state, staging.run(jobs))


def _shares(parts: Sequence[PagePart], num_shares: int) -> Iterator[Sequence[PagePart]]:
    """Parts that follow each other, for one thread: few long calls, because threads wait for each other in between."""
    size = -(-len(parts) // num_shares)
    for first in range(0, len(parts), size):
        yield parts[first : first + size]
