"""The replicas that a router knows: found by the model that a request names, and dropped when they are gone.

A replica is one model of a server. It comes from the index, by its heartbeat, or from the command line, by the URL of
its server alone: such a one is asked for its health, and what its models hold is guessed from what was sent there.
"""

import time
from collections.abc import Callable, Collection, Iterable, Sequence

from leftoff.cluster.replica import EXPIRY_S, MAX_MODELS, MODEL_S, Replica
from leftoff.cluster.replica_view import ReplicaView
from leftoff.cluster.roster import Work
from leftoff.errors import LeftoffError
from leftoff.lru import LruCache
from leftoff.server.hosts import listed_names, meant, untagged


class UnknownModelError(LeftoffError):
    """A request names a model that no replica has, or none where there are several; the message names those."""


class Fleet:
    """All replicas by their ids."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.views: dict[str, ReplicaView] = {}
        self.leaving: Collection[str] = ()  # URLs of replicas that are to stop, and get nothing new
        self.clock = clock
        self._models: LruCache[str, float] = LruCache(max_entries=MAX_MODELS)  # by name: when a replica had it

    def beat(self, told: Replica) -> ReplicaView:
        for name in (told.model, *told.aliases):
            self.saw_model(name)
        view = self.views.get(told.id)
        if view is None:
            view = self.views[told.id] = ReplicaView(told, self.clock)
        view.beat(told)
        return view

    def expire(self, since: float) -> list[ReplicaView]:
        """Drops replicas whose heartbeat has stopped. The time before `since`, when nobody could have read one, is not
        counted."""
        gone = [view for view in self.views.values() if self.clock() - max(view.seen_at, since) > EXPIRY_S]
        for view in gone:
            view.gone.set()
            del self.views[view.id]
        return gone

    def saw_model(self, name: str) -> None:
        """Takes note that a replica has a model of this name, or had one lately."""
        if name:
            self._models.put(untagged(name), self.clock())

    @property
    def models(self) -> list[str]:
        """The names of the models that replicas have now."""
        return sorted({view.told.model for view in self.views.values() if view.told.model})

    def candidates(self, model: str, besides: Iterable[str] = (), name: str = "") -> list[ReplicaView]:
        """The replicas of a model that take requests, and whose servers know it by this name; those of any, if none is
        named.

        No replica of a server that has one of those `besides` is among them. If all that are left have failed lately,
        these are better than none.
        """
        servers = self.servers
        tried = {*self.leaving, *(self.views[each].told.url for each in besides if each in self.views)}
        views = [view for view in self.views.values() if view.is_there and view.told.url not in tried]
        there = [view for view in views if not (view.name and model) or view.name == model]
        there = [view for view in there if _is_known_as(view, name, servers[view.told.url])]
        return [view for view in there if view.takes_requests] or there

    def meant(self, name: str) -> str:
        """The model that is to answer a prompt. Raises `UnknownModelError` if that is not clear.

        Where all replicas have one model without aliases, it answers by any name, as a server does: many clients send a
        name of their own. A name that belongs to another model, whose replicas are gone, is not such a name. Without a
        name the first model of the servers answers, if that is the same on all.
        """
        views = sorted(self.views.values(), key=lambda view: (view.told.order, view.name))
        if name and (found := meant(name, (view for view in views if view.name))) is not None:
            return found.name
        if self._is_remembered(untagged(name)):
            return untagged(name)
        writers = [view for view in views if view.name and view.told.writes]
        choice = sorted({view.name for view in writers if name or not view.told.order})
        if len(choice) > 1 or (name and any(view.aliases for view in writers)):
            problem = f"there is no model {name!r} in this fleet" if name else "the request names no model"
            raise UnknownModelError(f"{problem}: name one of {listed_names(self.models)}")
        return choice[0] if choice else ""

    def _is_remembered(self, name: str) -> bool:
        seen_at = self._models.peek(name)
        return seen_at is not None and self.clock() - seen_at < MODEL_S

    @property
    def servers(self) -> dict[str, list[ReplicaView]]:
        """The replicas by the URL of their server."""
        return self._grouped(lambda view: view.told.url)

    @property
    def work(self) -> dict[str, Work]:
        """The requests on their way to each replica and the seconds of its unread prompts, by URL."""
        return {
            url: Work(sum(view.work.requests for view in views), sum(view.work.read_s for view in views))
            for url, views in self.servers.items()
        }

    @property
    def groups(self) -> dict[str, list[ReplicaView]]:
        """The replicas by fingerprint: only those of one group share anything."""
        return self._grouped(lambda view: view.told.fingerprint)

    def _grouped(self, name_of: Callable[[ReplicaView], str]) -> dict[str, list[ReplicaView]]:
        groups: dict[str, list[ReplicaView]] = {}
        for view in self.views.values():
            groups.setdefault(name_of(view), []).append(view)
        return groups


def _is_known_as(view: ReplicaView, name: str, server: Sequence[ReplicaView]) -> bool:
    """Whether its server takes this name for this model: one that is alone and has no aliases takes any."""
    is_alone = [each for each in server if each.told.writes] == [view]
    if not view.name or untagged(name) in ("", view.name) or (is_alone and not view.aliases):
        return True
    return meant(name, sorted(server, key=lambda each: each.told.order)) is view
