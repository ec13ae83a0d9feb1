"""Chooses a replica for each request: the one whose estimated price is the lowest.

It has no state of its own that matters: several routers may run, and one that was just started only estimates worse
for a moment.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from leftoff.cache.tiers import PAGE_TOKENS
from leftoff.cluster.chain import Chain
from leftoff.cluster.fleet import Fleet
from leftoff.cluster.index import IndexFollower
from leftoff.cluster.memory import Known, PromptMemory
from leftoff.cluster.replica_view import ReplicaView
from leftoff.cluster.score import Estimate, FoundPoint
from leftoff.errors import LeftoffError
from leftoff.lru import LruCache
from leftoff.server.reply.points import PromptPoints

NO_STORE: Mapping[str, list[FoundPoint]] = MappingProxyType({})
_MAX_OWNERS = _MAX_STORED = 100_000
_ASKED_TAGS = 3  # the store is asked for so many of the deepest places
_STORED_S, _MISSING_S = 10.0, 1.0  # how long an answer of the store is believed, yes or no
_NEAR_TOKENS = 64  # so few are prefilled faster than the store answers
_DOUBT = 16  # times too low may a measured prefill rate be: a machine that was busy with something else for a moment


class NoReplicaError(LeftoffError):
    """There is no replica to send a request to: none is known, or none can be reached."""


class AllFullError(LeftoffError):
    """Every replica has as many requests waiting as it takes."""


class OwnerGoneError(LeftoffError):
    """The replica is gone that alone had a stored response or a conversation."""


@dataclass(frozen=True)
class ReplicaChoice:
    """The replica for a request, and what is expected there."""

    view: ReplicaView
    chain: Chain
    estimate: Estimate

    @property
    def rank(self) -> tuple[float, int]:
        """The lowest is chosen. At equal prices that is the replica with the fewest requests so far."""
        return self.estimate.price_ms, self.view.num_requests

    def price_ms(self, fastest: float) -> float:
        """Its price if its prefill rate were that of the fastest, as far as its own may be measured too low."""
        rate = self.view.costs.prefill_tokens_per_ms
        faster = min(_DOUBT, max(1.0, fastest / rate))
        return replace(self.estimate, read_ms=self.estimate.read_ms / faster).price_ms


class Router:
    """One per process. Belongs to the event loop."""

    def __init__(self, fleet: Fleet, index: IndexFollower | None = None) -> None:
        self.fleet = fleet
        self._index = index
        self._memory = PromptMemory(index)
        # By fingerprint and tag: whether the store has it, and until when that is believed.
        self._stored: LruCache[tuple[str, bytes], tuple[float, bool]] = LruCache(max_entries=_MAX_STORED)
        self._owners: LruCache[str, str] = LruCache(max_entries=_MAX_OWNERS)
        self._token_bytes: dict[str, float] = {}  # by fingerprint: about how many bytes of state a token has

    async def choose(self, chain: Chain, besides: Collection[str] = ()) -> ReplicaChoice:
        """Raises `NoReplicaError`, `AllFullError`, `UnknownModelError` and `OwnerGoneError`."""
        model = self.fleet.meant(chain.model) if chain.model or chain.keys else ""
        views = self.fleet.candidates(model, besides, chain.model)
        if chain.replica:
            views = _of_server(self.fleet.views.get(chain.replica), views)
        if not views:
            is_named = model and self.fleet.candidates("", besides)
            which = f" {chain.replica!r}" if chain.replica else f" of {model!r}" if is_named else ""
            known = f"{len(self.fleet.views)} known, {len(besides)} tried"
            raise NoReplicaError(f"no replica{which} can be reached ({known})")
        if chain.owner is not None and (owner := await self._owner(chain.owner)) is not None:
            views = _of_server(owner, views) or views
        if not (free := [view for view in views if not (chain.keys and view.is_full)]):  # only prompts are queued
            raise AllFullError(f"all {len(views)} replicas have as many requests waiting as they take")
        return (await self.ranked(chain.of(model), free))[0]

    async def ranked(self, chain: Chain, views: Sequence[ReplicaView]) -> list[ReplicaChoice]:
        """A choice for each of these replicas, the best first."""
        known = await self._memory.find(chain)
        choices = self._choices(chain, known, views)
        if self._index is not None and self._may_be_better_from_store(choices[0], known):
            choices = self._choices(chain, known, views, await self._found_in_store(views, known))
        return choices

    def _choices(
        self,
        chain: Chain,
        known: Known,
        views: Sequence[ReplicaView],
        stored: Mapping[str, list[FoundPoint]] = NO_STORE,
    ) -> list[ReplicaChoice]:
        servers = self.fleet.servers
        choices = [
            ReplicaChoice(
                view,
                chain,
                view.estimate(
                    chain, known, stored.get(view.told.fingerprint, ()), view.wake_ms(servers.get(view.told.url, ()))
                ),
            )
            for view in views
        ]
        return _at_home_first(sorted(choices, key=lambda choice: choice.rank))

    def learn(self, chain: Chain, points: PromptPoints) -> None:
        """A replica has told where a prompt may be resumed."""
        self._memory.learn(chain, points)

    # --- ids that one replica alone knows

    def own(self, name: str, view: ReplicaView) -> None:
        """A replica has made an id under which it keeps something for later requests."""
        self._owners.put(name, view.id)
        if self._index is not None:
            self._index.put({_owner_key(name): view.id.encode()})

    async def _owner(self, name: str) -> ReplicaView | None:
        """The replica that has made an id, if that is known. Raises `OwnerGoneError`."""
        owner = self._owners.get(name)
        if owner is None and self._index is not None:
            found = await self._index.find([_owner_key(name)])
            owner = found.get(_owner_key(name), b"").decode()
        if owner and owner not in self.fleet.views:
            raise OwnerGoneError(f"{name} was kept by the replica {owner} alone, which is gone: send the whole input")
        return self.fleet.views.get(owner or "")

    # --- the store

    def _may_be_better_from_store(self, best: ReplicaChoice, known: Known) -> bool:
        """The best replica has a queue, or lacks part of a known prefix: fetching from the store may be faster."""
        if not known.places:
            return False
        deepest = max(place.position for place in known.places)
        return best.estimate.queue_ms > 0 or deepest - best.estimate.resume > _NEAR_TOKENS

    async def _found_in_store(self, views: Sequence[ReplicaView], known: Known) -> dict[str, list[FoundPoint]]:
        places = sorted(known.places, key=lambda place: -place.position)[:_ASKED_TAGS]
        found: dict[str, list[FoundPoint]] = {}
        for fingerprint in {view.told.fingerprint for view in views if view.told.has_store}:
            there = await self._which_are_stored(fingerprint, [place.tag for place in places])
            token_bytes = self._bytes_of_token(fingerprint, views)
            found[fingerprint] = [
                FoundPoint(at, nbytes := round(token_bytes * at), 0, nbytes, -(-at // PAGE_TOKENS) + 1)
                for at in (place.position for place in places if place.tag in there)
            ]
        return found

    async def _which_are_stored(self, fingerprint: str, tags: Sequence[bytes]) -> set[bytes]:
        assert self._index is not None
        now = self.fleet.clock()
        answers = {tag: self._stored.get((fingerprint, tag)) for tag in tags}
        known = {tag: answer[1] for tag, answer in answers.items() if answer is not None and now < answer[0]}
        asked = [tag for tag in tags if tag not in known]
        there = {*await self._index.stored(fingerprint, asked)} if asked else set()
        for tag in asked:
            self._stored.put((fingerprint, tag), (now + (_STORED_S if tag in there else _MISSING_S), tag in there))
        return there | {tag for tag, is_there in known.items() if is_there}

    def _bytes_of_token(self, fingerprint: str, views: Sequence[ReplicaView]) -> float:
        """Bytes of saved state per token, estimated from what replicas hold. Computed once per fingerprint."""
        if not self._token_bytes.get(fingerprint):
            held = (held for view in views if view.told.fingerprint == fingerprint for held in view.held.values())
            weights = [(each.ram_bytes + each.disk_bytes) / each.end for each in held if each.end]
            self._token_bytes[fingerprint] = max(weights, default=0.0)
        return self._token_bytes[fingerprint]


def _of_server(one: ReplicaView | None, views: Sequence[ReplicaView]) -> list[ReplicaView]:
    """The views of the models on the same server as `one`; none if `one` is None."""
    return [view for view in views if one is not None and view.told.url == one.told.url]


def _at_home_first(choices: list[ReplicaChoice]) -> list[ReplicaChoice]:
    """A prompt leaves the replica that holds most of it to be read sooner, not because rates are measured unlike.

    Rates of a busy replica are new, those of an idle one as old as its last request: where all have become slower, only
    the busy one tells so.
    """
    best, home = choices[0], max(choices, key=lambda choice: choice.estimate.held)
    rate = best.view.costs.prefill_tokens_per_ms
    if home.estimate.held > best.estimate.held and home.price_ms(rate) < best.estimate.price_ms:
        return [home, *(choice for choice in choices if choice is not home)]
    return choices


def _owner_key(name: str) -> bytes:
    return b"owner:" + name.encode()
