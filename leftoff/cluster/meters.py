"""The router's own figures for Prometheus: what it chose, how quickly, and what had to be tried again."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from leftoff.cluster.fleet import Fleet
from leftoff.cluster.replica_view import ReplicaView
from leftoff.cluster.router import ReplicaChoice

_DECISION_S = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05)
_FIRST_TOKEN_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)


class Meters:
    """One per router."""

    def __init__(self, fleet: Fleet, has_index: Callable[[], bool] | None = None) -> None:
        """`has_index` tells whether the index answers, if there is one."""
        self._registry = registry = CollectorRegistry()
        self._requests = Counter("leftoff_route_requests", "Requests sent to a replica", ["replica"], registry=registry)
        self._decisions = Histogram(
            "leftoff_route_decision_seconds", "Time to choose a replica", buckets=_DECISION_S, registry=registry
        )
        self._expected = Histogram(
            "leftoff_route_expected_first_token_seconds",
            "Estimated time to the first token where a request was sent",
            buckets=_FIRST_TOKEN_S,
            registry=registry,
        )
        self.retries = Counter("leftoff_route_retries", "Requests that another replica had to take", registry=registry)
        self.refusals = Counter("leftoff_route_refusals", "Requests that no replica took", registry=registry)
        self.breaks = Counter("leftoff_route_broken_answers", "Answers that broke off midway", registry=registry)
        if has_index is not None:
            Gauge("leftoff_route_index_up", "Whether the index answers", registry=registry).set_function(has_index)
        registry.register(_FleetCollector(fleet))

    def chosen(self, choice: ReplicaChoice, seconds: float) -> None:
        self._requests.labels(choice.view.id).inc()
        self._decisions.observe(seconds)
        self._expected.observe(choice.estimate.first_token_ms / 1000)

    def text(self) -> bytes:
        """The figures in the format of Prometheus."""
        return generate_latest(self._registry)


class _FleetCollector(Collector):
    """The replicas as they are when somebody asks."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    def collect(self) -> Iterable[Metric]:
        views = [*self._fleet.views.values()]
        figures: dict[str, tuple[str, Callable[[ReplicaView], float]]] = {
            "leftoff_route_replica_up": ("Whether a replica takes requests", lambda v: float(v.takes_requests)),
            "leftoff_route_replica_queue_seconds": ("Until a new request is read", lambda v: v.queue_ms / 1000),
            "leftoff_route_replica_in_flight": ("Requests that are on their way", lambda v: len(v.flights)),
            "leftoff_route_replica_queued_tokens": ("To be prefilled", lambda v: v.told.load.queued_tokens),
            "leftoff_route_replica_waiting": ("Requests without a slot", lambda v: v.told.load.num_waiting),
            "leftoff_route_replica_points": ("Resume points that it holds", lambda v: len(v.held)),
        }
        for name, (meaning, value) in figures.items():
            family = GaugeMetricFamily(name, meaning, labels=["replica", "model", "fingerprint"])
            for view in views:
                family.add_metric([view.id, view.told.model, view.told.fingerprint[:12]], value(view))
            yield family
