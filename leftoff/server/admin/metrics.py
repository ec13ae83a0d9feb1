"""What Prometheus scrapes: llama-server's metrics by its names, and our own, of the tenant whose key it sends."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from leftoff.server.admin.levels import TierLevels, tier_levels
from leftoff.server.counts import FIRST_TOKEN_SECONDS, Counts
from leftoff.server.http.endpoint import Dialect, Endpoint
from leftoff.server.service import Service
from leftoff.server.tenant import Tenant, tenant_of


@dataclass(frozen=True)
class Levels:
    """How things stand at this moment, for one tenant."""

    num_running: int
    num_waiting: int
    tiers: tuple[TierLevels, ...]
    context_tokens: int
    free_tokens: int | None  # None where other tenants fill the context, too


class MetricsApi(Dialect):
    """A registry of its own for each scrape: nothing global, so that many servers fit in one process."""

    def __init__(self, service: Service) -> None:
        self._service = service

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint("GET", "/metrics", "For Prometheus", self.metrics)]

    async def metrics(self, request: Request) -> Response:
        tenant, registry = tenant_of(request), CollectorRegistry()
        registry.register(await self._service.between_steps(lambda: self._scrape(tenant)))
        return Response(generate_latest(registry), headers={"content-type": CONTENT_TYPE_LATEST})

    def _scrape(self, tenant: Tenant) -> "_Scrape":
        return _Scrape(self._service.counts[tenant.name], self._levels(tenant))

    def _levels(self, tenant: Tenant) -> Levels:
        service, memory = self._service, self._service.cache.memory
        return Levels(
            num_running=sum(tenant.sees(run.job.namespace) for run in service.scheduler.runs),
            num_waiting=sum(tenant.sees(run.job.namespace) for run in service.scheduler.waiting),
            tiers=tuple(tier_levels(tier, tenant) for tier in service.cache.tiers),
            context_tokens=memory.num_cells,
            free_tokens=memory.free_cells if tenant.is_alone else None,
        )


class _Scrape(Collector):
    def __init__(self, counts: Counts, levels: Levels) -> None:
        self._counts = counts
        self._levels = levels

    def collect(self) -> Iterable[Metric]:
        yield from self._as_llama_server()
        yield from self._requests()
        yield from self._cache()

    def _as_llama_server(self) -> Iterator[Metric]:
        counts, levels = self._counts, self._levels
        computed = counts.computed_tokens.total()
        yield _counter("llamacpp:prompt_tokens", "Prompt tokens computed", computed)
        yield _counter("llamacpp:prompt_tokens_cached", "Prompt tokens reused", counts.reused_tokens)
        yield _counter("llamacpp:prompt_seconds", "Time spent reading prompts", counts.prompt_seconds)
        yield _counter("llamacpp:tokens_predicted", "Tokens generated", counts.generated_tokens)
        yield _counter("llamacpp:tokens_predicted_seconds", "Time spent generating", counts.generation_seconds)
        yield _gauge("llamacpp:prompt_tokens_seconds", "Prompt tokens per second", computed, counts.prompt_seconds)
        generated = counts.generated_tokens
        yield _gauge("llamacpp:predicted_tokens_seconds", "Tokens per second", generated, counts.generation_seconds)
        yield _gauge("llamacpp:requests_processing", "Requests in a slot", levels.num_running)
        yield _gauge("llamacpp:requests_deferred", "Requests that wait for a slot", levels.num_waiting)
        yield _gauge("llamacpp:n_tokens_max", "Most tokens in one sequence so far", counts.most_tokens)

    def _requests(self) -> Iterator[Metric]:
        counts = self._counts
        yield _labelled("leftoff_requests", "Requests by how they ended", "finish", counts.requests)
        yield _counter("leftoff_reused_tokens", "Prompt tokens that were not read again", counts.reused_tokens)
        yield _labelled("leftoff_computed_tokens", "Prompt tokens read, and why", "reason", counts.computed_tokens)
        yield _counter("leftoff_read_ahead_tokens", "Prompt tokens read while idle", counts.read_ahead_tokens)
        edges = [*map(str, FIRST_TOKEN_SECONDS), "+Inf"]
        buckets = list(zip(edges, accumulate(counts.first_token_buckets), strict=True))
        yield HistogramMetricFamily(
            "leftoff_time_to_first_token_seconds",
            "From a request's arrival to its first token",
            buckets=buckets,
            sum_value=counts.first_token_seconds,
        )

    def _cache(self) -> Iterator[Metric]:
        levels, tiers = self._levels, self._levels.tiers
        yield _of_tiers("leftoff_cache_bytes", "Bytes kept", {tier.name: tier.used_bytes for tier in tiers})
        budgets = {tier.name: tier.budget_bytes for tier in tiers}
        yield _of_tiers("leftoff_cache_budget_bytes", "Bytes that may be kept", budgets)
        yield _of_tiers("leftoff_cache_entries", "Resume points kept", {tier.name: tier.num_entries for tier in tiers})
        evictions = {tier.name: tier.num_evictions for tier in tiers if tier.num_evictions is not None}
        yield _labelled("leftoff_cache_evictions", "Resume points given up for the budget", "tier", evictions)
        yield _gauge("leftoff_context_tokens", "Tokens that fit in the engine", levels.context_tokens)
        if levels.free_tokens is not None:
            yield _gauge("leftoff_context_free_tokens", "Tokens that still fit", levels.free_tokens)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _labelled(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, value in sorted(dict(values).items()):
        family.add_metric([key], value)
    return family


def _of_tiers(name: str, text: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["tier"])
    for tier, value in values.items():
        family.add_metric([tier], value)
    return family


def _gauge(name: str, text: str, value: float, per: float | None = None) -> Metric:
    shown = value if per is None else value / per if per > 0 else 0.0
    return GaugeMetricFamily(name, text, value=shown)
