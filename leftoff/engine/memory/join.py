"""Joins pages into one state that llama.cpp loads in one call, by several threads where state moves to a GPU.

llama.cpp books the tokens of a state, by the entries of its cells, before it looks at its rows; with many tokens that
takes milliseconds, in which threads may still write rows. Until all are written the *head*, the bytes before the first
row, is wrong: should llama.cpp come there too early it refuses the state, and is given it again.

    threads     [ rows ··············· rows )[ head
    llama.cpp            [ books tokens ······· )[ looks at the head, and copies the rows )
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np

from leftoff.engine.context import Context
from leftoff.engine.errors import BlobError
from leftoff.engine.memory.arena import Buffer, Raw, view_of
from leftoff.engine.memory.base import PagePart
from leftoff.engine.memory.layout import Layout, OpenPart
from leftoff.engine.memory.staging import Staging

_SHARES = 4  # of the pages for each thread, so that it shows how much is left to write


@dataclass(frozen=True)
class Join:
    """A state in memory for transfers, to which threads may still write rows, and then the head."""

    num_tokens: int
    _state: Buffer
    _staging: Staging
    _writing: Sequence[Future[None]]
    _is_early: bool  # llama.cpp may be given the state while threads still write

    def load(self, context: Context, seq: int, flags: int = 0) -> None:
        """Makes it the state of a sequence."""
        if self._is_early and self._wait_for_most():
            with suppress(BlobError), context.model.library.log.collected():
                context.set_state(seq, self._state.view, flags)
                return
            self._staging.was_early()
        for future in self._writing:
            future.result()
        context.set_state(seq, self._state.view, flags)

    def _wait_for_most(self) -> bool:
        """Waits until only as much is left to write as threads write while the tokens are booked. False if all is."""
        left_bytes = self._staging.bytes_per_booking * self.num_tokens
        num_left = int(len(self._writing) * min(1.0, left_bytes / self._state.nbytes))
        for future in self._writing[: len(self._writing) - num_left]:
            future.result()
        return bool(self._writing) and not self._writing[-1].done()


def begin_join(staging: Staging, layout: Layout, parts: Sequence[PagePart], rest: Raw) -> Join:
    """Starts to write one section with the cells of all parts, and `rest` behind it."""
    num_tokens = sum(part.num_tokens for part in parts)
    section = layout.section_end(num_tokens)
    state = staging.take(section + rest.nbytes)
    pages = [(view_of(part.page.data), part) for part in parts]
    layout.write_frame(state.view, num_tokens)
    layout.copy_entries(pages, state.view, num_tokens)
    state.view[section:] = rest
    head = layout.first_head(state.view, num_tokens)
    right = head.copy()
    head[:] = 0
    rows = staging.begin(
        partial(layout.copy_rows, share, state.view, num_tokens, share[0][1].start - parts[0].start)
        for share in _shares(pages, max(1, _SHARES * staging.num_threads))
    )
    writing = [*rows, *staging.begin([partial(_write_head, head, right, rows)])]
    return Join(num_tokens, state, staging, writing, layout.is_refused_headless)


def _write_head(head: Raw, right: Raw, rows: Sequence[Future[None]]) -> None:
    for future in rows:
        future.result()
    np.copyto(head, right)


def _shares(pages: Sequence[OpenPart], num_shares: int) -> Iterator[Sequence[OpenPart]]:
    """Pages that follow each other, for one call of a thread."""
    size = -(-len(pages) // num_shares)
    for first in range(0, len(pages), size):
        yield pages[first : first + size]
