"""The router inside Ray Serve: a request router whose ranks are those of `router.py`, by the same scorer.

Ray polls what its replicas tell only every few seconds, so it is used for the address alone; what they hold comes from
the index, as for `leftoff route`. It runs in the process of the ingress, which tells it what replicas answer.
"""

import asyncio
import time
from typing import Any

from ray.serve.request_router import PendingRequest, ReplicaID, RequestRouter, RunningReplica

from leftoff.cluster import ray_link
from leftoff.cluster.chain import NO_CHAIN, Chain, read_chain
from leftoff.cluster.fleet import Fleet, Flight, ReplicaView, unknown_replica
from leftoff.cluster.index import IndexFollower
from leftoff.cluster.meters import Meters
from leftoff.cluster.router import ReplicaChoice, Router
from leftoff.store.points import decode_points

URL = "url"  # in the routing stats of a replica


class StateRouter(RequestRouter):
    """Implements Ray's `RequestRouter`. Calls have the arguments of `ray_serve.Replica.ask`."""

    def initialize_state(self, index: str | None = None) -> None:
        self._fleet = Fleet()
        self._index_url = index
        self._router: Router | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unknown: dict[str, ReplicaView] = {}  # by address: those without a heartbeat
        self._choices: dict[str, dict[ReplicaID, ReplicaChoice]] = {}  # of requests that are being routed, by their ids
        self._flights: dict[str, tuple[ReplicaView, Flight]] = {}
        self._meters = Meters(self._fleet)
        ray_link.join(self)

    async def choose_replicas(
        self, candidate_replicas: list[RunningReplica], pending_request: PendingRequest | None = None
    ) -> list[list[RunningReplica]]:
        """One rank for each replica, the best first: where it is full, Ray goes on to the next."""
        if not candidate_replicas or pending_request is None:
            return [candidate_replicas]
        router, began = self._started(), time.perf_counter()
        views = {replica.replica_id: self._view(replica) for replica in candidate_replicas}
        ranked = await router.ranked(_chain_of(pending_request), [*views.values()])
        self._meters.chosen(ranked[0], time.perf_counter() - began)
        order = {choice.view.id: (place, choice) for place, choice in enumerate(ranked)}
        self._choices[pending_request.metadata.internal_request_id] = {
            replica_id: order[view.id][1] for replica_id, view in views.items()
        }
        by_rank = sorted(candidate_replicas, key=lambda replica: order[views[replica.replica_id].id][0])
        return [[replica] for replica in by_rank]

    def on_request_routed(self, pending_request: PendingRequest, replica_id: ReplicaID, result: Any) -> None:  # noqa: ANN401, ARG002
        """Counts the request at once, so that those routed in the same moment see it in the queue."""
        name = pending_request.metadata.internal_request_id
        choice = self._choices.pop(name, {}).get(replica_id)
        if choice is not None:
            self._flights[name] = choice.view, choice.view.send(choice.chain, choice.estimate.work_ms)

    def on_request_completed(self, replica_id: ReplicaID, internal_request_id: str) -> None:  # noqa: ARG002
        self._choices.pop(internal_request_id, None)
        if (sent := self._flights.pop(internal_request_id, None)) is not None and self._loop is not None:
            view, flight = sent
            self._loop.call_soon_threadsafe(view.ended, flight)

    def _started(self) -> Router:
        if self._router is None:
            self._loop = asyncio.get_running_loop()
            index = IndexFollower(self._index_url, self._fleet) if self._index_url else None
            if index is not None:
                index.start()
            self._router = Router(self._fleet, index)
        return self._router

    def _view(self, replica: RunningReplica) -> ReplicaView:
        """Found by the address in its heartbeat; before the first one, a view of which nothing is known."""
        url = str((replica.routing_stats or {}).get(URL) or replica.replica_id.to_full_id_str())
        known = next((view for view in self._fleet.views.values() if view.told.url == url), None)
        if known is not None:
            self._unknown.pop(url, None)
            return known
        return self._unknown.setdefault(url, ReplicaView(unknown_replica(url)))

    # --- ray_link.Listener

    def metrics(self) -> bytes:
        return self._meters.text()

    def begun(self, body: bytes, headers: dict[str, str], points: str | None) -> None:
        if self._loop is not None and points is not None:
            self._loop.call_soon_threadsafe(self._learn, body, headers, points)

    def _learn(self, body: bytes, headers: dict[str, str], points: str) -> None:
        chain, told = read_chain(body, headers), decode_points(points)
        for view, flight in self._flights.values():
            if flight.keys == chain.keys:
                view.begun(flight)
        if self._router is not None and told is not None:
            self._router.learn(chain, told)


def _chain_of(pending: PendingRequest) -> Chain:
    arguments = [*pending.args, *pending.kwargs.values()]
    body = next((each for each in arguments if isinstance(each, bytes)), b"")
    headers = next((each for each in arguments if isinstance(each, dict)), {})
    return read_chain(body, headers) if body else NO_CHAIN
