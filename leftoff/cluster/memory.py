"""What a router remembers of the prompts it has passed on: where in a conversation resume points may lie.

Replicas tell it with their answers (`server/reply/points.py`). It is a cache: what one router has learnt, others find
in the index, and a router that knows nothing of a conversation only estimates worse.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from msgspec import MsgspecError, Struct, msgpack

from leftoff.cluster.chain import Chain
from leftoff.lru import LruCache
from leftoff.server.reply.points import AT_HEADER, PromptPoints

_MAX_KEYS = 200_000  # about 100 bytes each
_MAX_TAGS = 8  # positions remembered for one key
_NEW_KEYS = 3  # a turn adds a reply and a message or two: more unknown keys, and others may know them
_WEIGHT = 0.2  # of the newest measurement in the average
_TOKENS_PER_BYTE = 0.25  # until it is measured


class Place(Struct, frozen=True, array_like=True):
    """A position of a prompt, and the tag of the tokens up to there."""

    position: int
    tag: bytes


class Shared(Protocol):
    """Where routers share what they have learnt. It is a cache: finding and putting may both fail silently."""

    async def find(self, keys: Sequence[bytes]) -> Mapping[bytes, bytes]: ...
    def put(self, values: Mapping[bytes, bytes]) -> None: ...


@dataclass(frozen=True)
class Known:
    """What is remembered of one chain: places on its path, and the estimated length of its prompt in tokens."""

    places: tuple[Place, ...]
    length: int
    positions: tuple[int, ...]  # for each key of the chain, about how many tokens come before its end


class PromptMemory:
    """Places by the keys of chains. Belongs to the event loop."""

    def __init__(self, shared: Shared | None = None) -> None:
        self._places: LruCache[bytes, tuple[Place, ...]] = LruCache(max_entries=_MAX_KEYS)
        self._shared = shared
        self._tokens_per_byte = _TOKENS_PER_BYTE

    async def find(self, chain: Chain) -> Known:
        """Asks the index only for a conversation that this router does not know."""
        found = dict(zip(chain.keys, self._places.get_many(chain.keys), strict=True))
        unknown = [key for key in chain.keys if found[key] is None]
        deepest = max((index for index, key in enumerate(chain.keys) if found[key] is not None), default=-1)
        if self._shared is not None and len(chain.keys) - 1 - deepest > _NEW_KEYS:
            for key, value in (await self._shared.find(unknown)).items():
                if places := _decoded(value):
                    found[key] = places
                    self._places.put(key, places)
        return self._known(chain, [found[key] or () for key in chain.keys])

    def _known(self, chain: Chain, places: Sequence[tuple[Place, ...]]) -> Known:
        positions: list[int] = []
        at, end = 0, 0
        for here, stop in zip(places, chain.ends, strict=True):
            at = max((place.position for place in here), default=at + round((stop - end) * self._tokens_per_byte))
            end = stop
            positions.append(at)
        return Known(
            tuple(place for here in places for place in here), positions[-1] if positions else 0, tuple(positions)
        )

    def learn(self, chain: Chain, told: PromptPoints) -> None:
        """Remembers the points of a prompt under the keys of its chain."""
        if not chain.keys:
            return
        self._tokens_per_byte += _WEIGHT * (told.length / max(1, chain.ends[-1]) - self._tokens_per_byte)
        changed: dict[bytes, bytes] = {}
        for key, places in _by_key(chain, told).items():
            known = self._places.get(key) or ()
            merged = tuple(dict.fromkeys((*places, *known)))[:_MAX_TAGS]
            if merged != known:
                self._places.put(key, merged)
                changed[key] = msgpack.encode(merged)
        if changed and self._shared is not None:
            self._shared.put(changed)


def _by_key(chain: Chain, told: PromptPoints) -> dict[bytes, list[Place]]:
    """Groups the points by the key under which each is remembered: the first whose text reaches as far as the point.

    Messages are counted from the last one, since header rules may drop some at the beginning. A template may also show
    one message as several, so a point is not put before its share of the text either. A text that is no chat goes on in
    its last part, whose key is another one then: its points are remembered under the key before.
    """
    last = len(chain.keys) - 1
    places: dict[bytes, list[Place]] = {}
    for point in told.points:
        if chain.is_text:
            index = last - 1
        elif point.num_after == AT_HEADER:
            index = chain.header
        else:
            share = bisect_left(chain.ends, chain.ends[-1] * point.position / told.length)
            index = max(last - point.num_after, share - 1)
        places.setdefault(chain.keys[min(last, max(0, index))], []).append(Place(point.position, point.tag))
    return places


def _decoded(value: bytes) -> tuple[Place, ...]:
    try:
        return msgpack.decode(value, type=tuple[Place, ...])
    except MsgspecError:
        return ()  # written by another version of leftoff
