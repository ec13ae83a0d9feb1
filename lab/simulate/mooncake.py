"""Reads Mooncake's traces: one JSON object per line and request, `hash_ids` for blocks of 512 tokens.

Nobody knows who asked; the times are those of the whole recording. The last id may stand for less than a block, and
nothing can go on from there, so it is left out.
"""

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from lab.simulate.trace import Recording, Request, Span

_BLOCK_TOKENS = 512


class Row(msgspec.Struct):
    """One line."""

    timestamp: float
    input_length: int
    hash_ids: list[int]


def read(name: str, lines: Iterable[bytes]) -> Recording:
    decoder = msgspec.json.Decoder(Row)
    requests = [_request(decoder.decode(line)) for line in lines]
    return Recording(name, _BLOCK_TOKENS, [[request for request in requests if request.spans]])


def _request(row: Row) -> Request:
    whole = row.hash_ids[: row.input_length // _BLOCK_TOKENS]
    return Request(0, row.timestamp / 1000, row.input_length, tuple(_spans(whole)))


def _spans(ids: Sequence[int]) -> Iterator[Span]:
    first = 0
    for index in range(1, len(ids) + 1):
        if index == len(ids) or ids[index] != ids[index - 1] + 1:
            yield ids[first], ids[index - 1]
            first = index
