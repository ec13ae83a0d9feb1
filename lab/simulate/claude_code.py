"""Reads sessions of Claude Code: one JSON object per line and request, its `blocks` as spans of block ids.

Ids count from 1 within a session; here every session gets ids of its own. The requests of a sub-agent stand between
those of the agent that sent it, in the order in which they came, but their times count from its own beginning.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from lab.simulate.trace import Recording, Request, Session, Span, TraceError

_MAIN = 1  # the first block of a session's own conversation


class Row(msgspec.Struct):
    """One line."""

    session: str
    t: float
    prompt_tokens: int = msgspec.field(name="in")
    header: int
    block: int
    blocks: list[Span]

    @property
    def is_main(self) -> bool:
        return bool(self.blocks) and self.blocks[0][0] == _MAIN


def read(name: str, lines: Iterable[bytes]) -> Recording:
    decoder = msgspec.json.Decoder(Row)
    rows: dict[str, list[Row]] = {}
    for line in lines:
        row = decoder.decode(line)
        rows.setdefault(row.session, []).append(row)
    sizes = {row.block for session in rows.values() for row in session}
    if len(sizes) != 1:
        raise TraceError(f"{name}: blocks of {sorted(sizes)} tokens: all must be of one size")
    return Recording(name, sizes.pop(), list(_sessions(rows.values())))


def _sessions(rows: Iterable[Sequence[Row]]) -> Iterator[Session]:
    used_ids = 0
    for number, session in enumerate(rows):
        times = _times(session)
        yield [
            _request(number, row, time_s, used_ids) for row, time_s in zip(session, times, strict=True) if row.blocks
        ]
        used_ids += max(last for row in session for _, last in row.blocks)


def _times(session: Sequence[Row]) -> Iterator[float]:
    """When each request came: a sub-agent begins when the request before it came."""
    began = now = last = 0.0
    was_main = True
    for row in session:
        if row.is_main:
            began = 0.0
        elif was_main or row.t < last:
            began = now
        now = max(now, began + row.t)
        last, was_main = row.t, row.is_main
        yield now


def _request(number: int, row: Row, time_s: float, used_ids: int) -> Request:
    spans = tuple((first + used_ids, last + used_ids) for first, last in row.blocks)
    header = row.header // row.block if row.is_main and row.header < row.prompt_tokens else 0
    return Request(number, time_s, row.prompt_tokens, spans, header)
