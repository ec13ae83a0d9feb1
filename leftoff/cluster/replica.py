"""What a replica tells the router through the index: its heartbeat, and what it keeps and drops. The formats.

A heartbeat comes every second and expires after five. What is held comes as deltas, numbered from 1 in each replica:
whoever sees a gap, or begins, reads the whole hash under `Keys.held`, and goes on from the number in it. All of it is a
hint: a replica that does not have what it told reads the prompt again, and no reply is ever different for it.

    XADD <Keys.deltas> replica <id> delta <msgpack of Delta>        in one transaction with
    HSET / HDEL <Keys.held(id)> <tag> <msgpack of Held> … number <number of the delta>
"""

from contextlib import suppress
from enum import StrEnum
from typing import Any

from msgspec import MsgspecError, Struct, msgpack

from leftoff.cache.costs import Costs
from leftoff.store.keys import REPLICAS, replica_key

HEARTBEAT_S = 1.0
EXPIRY_S = 5.0  # without a heartbeat a replica counts as gone
MAX_DELTAS = 10_000  # that the stream keeps, about


class ReplicaState(StrEnum):
    """Whether a replica takes new requests."""

    READY = "ready"
    DRAINING = "draining"  # it ends what it has begun, and then stops


class Load(Struct, frozen=True):
    """How busy a replica is."""

    num_slots: int = 1
    num_running: int = 0  # requests in a slot
    num_waiting: int = 0  # requests in its queue, which holds at most `most_waiting`
    most_waiting: int = 1 << 30
    queued_tokens: int = 0  # still to be prefilled, of requests that run or wait; an upper bound
    free_cells: int = 0


class Rates(Struct, frozen=True):
    """Measured costs, by the names of `cache.costs.Costs`."""

    prefill_tokens_per_ms: float
    step_ms: float
    reply_tokens: float
    load_bytes_per_ms: float
    call_ms: float
    disk_bytes_per_ms: float
    disk_call_ms: float
    store_bytes_per_ms: float
    store_call_ms: float

    @classmethod
    def of(cls, costs: Costs) -> "Rates":
        return cls(**{name: getattr(costs, name) for name in cls.__struct_fields__})


class Replica(Struct, frozen=True):
    """A heartbeat. The defaults are for a replica of which only the URL is known, which then is its id."""

    id: str
    url: str
    fingerprint: str = ""  # whole; only replicas of one fingerprint share anything
    model: str = ""  # its name, for clients
    described: str = ""  # model, library and KV type in words: to tell why two replicas share nothing
    version: str = ""  # of leftoff
    state: ReplicaState = ReplicaState.READY
    number: int = 0  # of its last delta
    load: Load = Load()
    rates: Rates = Rates.of(Costs())
    has_store: bool = False  # it can fetch what others have stored


class Held(Struct, frozen=True, array_like=True):
    """A resume point that a replica has, with all that leads to it."""

    tag: bytes  # at `end`
    run: bytes  # tag at the start of the run in which `end` lies, as for the index
    end: int
    ram_bytes: int  # to load from RAM; with none from disk either, a sequence in the engine ends there
    disk_bytes: int  # to fetch from disk before


class Delta(Struct, frozen=True, array_like=True):
    """What has changed since the delta before. With `is_whole`, it replaces all that was told."""

    number: int
    kept: list[Held]
    dropped: list[bytes]  # tags
    is_whole: bool = False


encode = msgpack.Encoder().encode
decode_replica = msgpack.Decoder(Replica).decode
decode_held = msgpack.Decoder(Held).decode
decode_delta = msgpack.Decoder(Delta).decode


async def heartbeats(redis: Any) -> list[Replica]:  # noqa: ANN401
    """The last heartbeat of every replica, of any fingerprint; those of other versions are left out."""
    ids = await redis.zrange(REPLICAS, 0, -1)
    beats = await redis.mget([replica_key(each.decode()) for each in ids]) if ids else []
    found = []
    for beat in filter(None, beats):
        with suppress(MsgspecError):
            found.append(decode_replica(beat))
    return found
