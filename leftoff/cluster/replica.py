"""The formats in which a replica tells the router, through the index, its heartbeat and what it keeps and drops.

A replica is one model of a server: a server with several has a heartbeat for each.

A heartbeat comes every second and expires after five. What is held comes as deltas, numbered from 1 in each replica:
whoever sees a gap, or begins, reads the whole hash under `Keys.held`, and goes on from the number in it. All of it is a
hint: a replica that does not have what it told reads the prompt again, and no reply is ever different for it.

    XADD <Keys.deltas> replica <id> delta <msgpack of Delta>        in one transaction with
    HSET / HDEL <Keys.held(id)> <tag> <msgpack of Held> … number <number of the delta>
"""

import logging
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from blake3 import blake3
from msgspec import Struct, msgpack
from msgspec.structs import asdict, replace

from leftoff import __version__
from leftoff.cache.costs import Costs, TierCosts
from leftoff.host.fleet import Place
from leftoff.scheduler.gate import Readiness
from leftoff.store.fleet_key import FleetKey
from leftoff.store.keys import MODELS, REPLICAS, replica_key
from leftoff.store.objects import STORE_COSTS

logger = logging.getLogger("leftoff.store")

HEARTBEAT_S = 1.0
EXPIRY_S = 5.0  # after which the index forgets a heartbeat, and routers one that the index has forgotten
MODEL_S = 86_400.0  # how long the name of a model is remembered after the last heartbeat of a replica that has it
MAX_DELTAS = 10_000  # that the stream keeps, about
MAX_MODELS = 1000  # whose names are remembered
_MAX_REPLICAS = 10_000
DISK_COSTS = TierCosts()  # before anything is measured


class ReplicaState(StrEnum):
    """Whether a replica takes new requests."""

    READY = "ready"
    DRAINING = "draining"  # it gives what it has begun a moment to end, and then stops


class Load(Struct, frozen=True):
    """How busy a replica is."""

    num_slots: int = 1
    num_running: int = 0  # requests in a slot
    num_waiting: int = 0  # requests in its queue, which holds at most `most_waiting`
    most_waiting: int = 1 << 30
    queued_tokens: int = 0  # still to be prefilled, of requests that run or wait; an upper bound
    free_cells: int = 0


@dataclass
class ReplicaCosts(Costs):
    """The costs of a replica, together with those of its tiers below RAM."""

    disk_bytes_per_ms: float = DISK_COSTS.bytes_per_ms
    disk_call_ms: float = DISK_COSTS.call_ms
    store_bytes_per_ms: float = STORE_COSTS.bytes_per_ms
    store_call_ms: float = STORE_COSTS.call_ms

    def fetch_ms(self, disk_bytes: int, store_bytes: int, num_blobs: int) -> float:
        """Fetching from its disk, and so many blobs from the store."""
        disk = TierCosts(self.disk_bytes_per_ms, self.disk_call_ms)
        store = TierCosts(self.store_bytes_per_ms, self.store_call_ms, STORE_COSTS.calls_at_once)
        return disk.fetch_ms(disk_bytes) + store.fetch_ms(store_bytes, num_blobs)


class Rates(Struct, frozen=True):
    """Measured costs, by the names of `ReplicaCosts`."""

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
    def of(cls, costs: Costs, disk: TierCosts = DISK_COSTS, store: TierCosts = STORE_COSTS) -> "Rates":
        own = (costs.prefill_tokens_per_ms, costs.step_ms, costs.reply_tokens, costs.load_bytes_per_ms, costs.call_ms)
        return cls(*own, disk.bytes_per_ms, disk.call_ms, store.bytes_per_ms, store.call_ms)

    @property
    def costs(self) -> ReplicaCosts:
        return ReplicaCosts(**asdict(self))


class Replica(Struct, frozen=True):
    """A heartbeat. The defaults are for a replica of which only the URL is known, which then is its id."""

    id: str
    url: str
    fingerprint: str = ""  # whole; only replicas of one fingerprint share anything; of one never opened not known
    model: str = ""  # its name, for clients
    described: str = ""  # model, library and KV type in words: to tell why two replicas share nothing
    version: str = ""  # of leftoff
    state: ReplicaState = ReplicaState.READY
    number: int = 0  # of its last delta
    load: Load = Load()
    rates: Rates = Rates.of(Costs())
    has_store: bool = False  # it can fetch what others have stored
    num_observed: int = 0  # times that load and what is held were looked at: what it tells is of the last time
    aliases: tuple[str, ...] = ()  # its other names, patterns among them
    order: int = 0  # among the models of its server: the first answers requests that name none
    readiness: Readiness = Readiness()
    writes: bool = True  # text: else it is an encoder, which answers by its names alone
    at: float = 0.0  # when it was sent, by the index's clock: an old one cannot be sent again

    @classmethod
    def all_of(cls, place: Place) -> "list[Replica]":
        """The models of a server, as far as they are known before they are opened. The first has the server's id."""
        return [
            cls(
                *(f"{place.server}.{blake3(each.name.encode()).hexdigest(4)}" if order else place.server, place.url),
                model=each.name,
                aliases=each.aliases,
                version=__version__,
                order=order,
                readiness=each.readiness,
                writes=each.writes,
            )
            for order, each in enumerate(place.models())
        ]


class Held(Struct, frozen=True, array_like=True):
    """A resume point that a replica has, with all that leads to it."""

    tag: bytes  # at `end`
    run: bytes  # tag at the start of the run in which `end` lies, as for the index
    end: int
    ram_bytes: int  # to load from RAM; with none from disk either, a sequence in the engine ends there
    disk_bytes: int  # to fetch from disk before


class Delta(Struct, frozen=True, array_like=True):
    """The entries kept and dropped since the delta before. With `is_whole`, it replaces all deltas before it."""

    number: int
    kept: list[Held]
    dropped: list[bytes]  # tags
    is_whole: bool = False


encode = msgpack.Encoder().encode
decode_replica = msgpack.Decoder(Replica).decode
decode_held = msgpack.Decoder(Held).decode
decode_delta = msgpack.Decoder(Delta).decode


class Heartbeats:
    """Writes and reads heartbeats, with MACs where the fleet has a key."""

    def __init__(self, key: FleetKey | None) -> None:
        self._key = key
        self._has_warned = False

    def encoded(self, replica: Replica, at: float) -> bytes:
        beat = encode(replace(replica, at=at))
        return beat if self._key is None else self._key.sealed(replica_key(replica.id), beat)

    async def read(self, redis: Any) -> list[Replica]:  # noqa: ANN401
        """The last heartbeat of every replica, of any fingerprint; of too many, those that have beaten last.

        Those of other versions are left out, and so are those of which the key does not show that a server sent them
        just now.
        """
        ids = await redis.zrange(REPLICAS, -_MAX_REPLICAS, -1)
        beats = await redis.mget([replica_key(each.decode()) for each in ids]) if ids else []
        now = (await redis.time())[0] if self._key is not None and ids else 0
        pairs = zip(ids, beats, strict=True)
        return [found for name, beat in pairs if beat and (found := self._decoded(name, beat, now)) is not None]

    def _decoded(self, name: bytes, beat: bytes, now: float) -> Replica | None:
        content = beat if self._key is None else self._key.opened(replica_key(name.decode()), beat)
        with suppress(ValueError):  # also for text that is no UTF-8
            replica = decode_replica(content or b"")
            if self._key is None or now - replica.at < EXPIRY_S + 1:  # `now` is in whole seconds
                return replica
        if not self._has_warned:
            self._has_warned = True
            logger.warning("heartbeats of another --fleet-key, or of another version, are left out: %.40r", name)
        return None


async def models(redis: Any) -> list[str]:  # noqa: ANN401
    """The names of all models that a replica has, or had within a day; of too many, the latest."""
    return [name.decode(errors="replace") for name in await redis.zrange(MODELS, -MAX_MODELS, -1)]
