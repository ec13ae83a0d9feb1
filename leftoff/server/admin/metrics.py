"""/metrics for Prometheus: llama-server's metrics by its names, and our own, of the tenant whose key is sent."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import UNSET
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from leftoff.host.host import ModelHost
from leftoff.host.request_log import Counts
from leftoff.scheduler.gate import Swaps
from leftoff.server.admin.cache import TierView, tier_view
from leftoff.server.dialect import Dialect
from leftoff.server.http.endpoint import Endpoint
from leftoff.server.reply.joined import answers_of, budgets_of
from leftoff.server.tenant import Tenant, tenant_of


class MetricsApi(Dialect):
    """Collected anew for each scrape. Nothing is registered globally, so that many servers fit in one process."""

    def endpoints(self) -> list[Endpoint]:
        return [Endpoint("GET", "/metrics", "For Prometheus", self.metrics)]

    async def metrics(self, request: Request) -> Response:
        """Answers a scrape. Of several models, each sample has the name of its model, unless one is asked for."""
        tenant, model = tenant_of(request), request.query_params.get("model")

        async def show(host: ModelHost) -> list[Metric]:
            return await host.between_steps(lambda: [*_metrics(host, tenant)])

        hosts = self._hosts.opened(model)
        answers = await answers_of(hosts, show)
        is_of_one = self._hosts.has_one or model
        metrics = next(iter(answers.values())) if is_of_one else _labelled(answers)
        scrape = _Scrape([*metrics, *self._metrics_of_all(hosts, tenant)])
        return Response(generate_latest(scrape), headers={"content-type": CONTENT_TYPE_LATEST})

    def _metrics_of_all(self, hosts: Sequence[ModelHost], tenant: Tenant) -> Iterator[Metric]:
        """Metrics that belong to no single model: budgets are shared, and what was refused has reached none."""
        refused, states = self._hosts.log.refused[tenant.name], Counter(late.status for late in self._hosts.listed())
        yield _labelled_gauge("leftoff_cache_budget_bytes", "Bytes that may be kept", "tier", budgets_of(hosts))
        yield _labelled_counter("leftoff_refused_requests", "Requests refused, by HTTP status", "status", refused)
        yield _labelled_gauge("leftoff_models", "Models by their state", "state", states)


def _metrics(host: ModelHost, tenant: Tenant) -> Iterator[Metric]:
    """The metrics of one model, for a tenant. Called on the engine's thread."""
    counts = host.log.counts[tenant.name, host.name]
    num_running, num_waiting = len(tenant.own(host.scheduler.runs)), len(tenant.own(host.scheduler.waiting))
    yield from _llama_server_metrics(counts, num_running, num_waiting)
    yield from _request_metrics(counts)
    yield from _swap_metrics(host.scheduler.gate.swaps)
    yield from _tier_metrics([tier_view(tier, tenant) for tier in host.cache.tiers])
    if host.fleet is not None:
        reachable = host.fleet.reachable()
        yield _labelled_gauge("leftoff_reachable", "Whether index and store answer", "part", reachable)
    memory, encoder = host.cache.memory, host.prompts.encoder
    yield _gauge("leftoff_context_tokens", "Tokens that fit in the engine", memory.num_cells)
    if tenant.is_alone:  # else other tenants fill the context too
        yield _gauge("leftoff_context_free_tokens", "Tokens that still fit", memory.free_cells)
        yield _counter("leftoff_encoded_images", "Images encoded", encoder.num_encoded if encoder is not None else 0)
        nbytes = encoder.kept.num_bytes if encoder is not None else 0
        yield _gauge("leftoff_image_bytes", "Bytes of encoded images in RAM", nbytes)


def _labelled(metrics: Mapping[str, Sequence[Metric]]) -> list[Metric]:
    """The metrics of all models, by their names: each family once, and each sample with its model."""
    families: dict[str, Metric] = {}
    for model, own in metrics.items():
        for metric in own:
            samples = [sample._replace(labels={"model": model} | sample.labels) for sample in metric.samples]
            metric.samples = []
            families.setdefault(metric.name, metric).samples += samples
    return [*families.values()]


class _Scrape(Collector):
    """The metrics of one scrape, as prometheus_client takes them."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


def _llama_server_metrics(counts: Counts, num_running: int, num_waiting: int) -> Iterator[Metric]:
    computed, generated = counts.computed_tokens.total(), counts.generated_tokens
    prompt_seconds, generation_seconds = counts.prompt_seconds, counts.generation_seconds
    yield _counter("llamacpp:prompt_tokens", "Prompt tokens computed", computed)
    yield _counter("llamacpp:prompt_tokens_cached", "Prompt tokens reused", counts.reused_tokens)
    yield _counter("llamacpp:prompt_seconds", "Time spent reading prompts", prompt_seconds)
    yield _counter("llamacpp:tokens_predicted", "Tokens generated", generated)
    yield _counter("llamacpp:tokens_predicted_seconds", "Time spent generating", generation_seconds)
    yield _gauge("llamacpp:prompt_tokens_seconds", "Prompt tokens per second", _rate(computed, prompt_seconds))
    yield _gauge("llamacpp:predicted_tokens_seconds", "Tokens per second", _rate(generated, generation_seconds))
    yield _gauge("llamacpp:requests_processing", "Requests in a slot", num_running)
    yield _gauge("llamacpp:requests_deferred", "Requests that wait for a slot", num_waiting)
    yield _gauge("llamacpp:n_tokens_max", "Most tokens in one sequence so far", counts.most_tokens)


def _request_metrics(counts: Counts) -> Iterator[Metric]:
    yield _counter("leftoff_drafted_tokens", "Tokens drafted for replies", counts.drafted_tokens)
    accepted = dict(counts.accepted_tokens)
    yield _labelled_counter("leftoff_accepted_tokens", "Drafted tokens that were right", "source", accepted)
    yield _labelled_counter("leftoff_requests", "Requests by how they ended", "finish", counts.requests)
    yield _counter("leftoff_reused_tokens", "Prompt tokens that were not read again", counts.reused_tokens)
    yield _counter("leftoff_saved_seconds", "Time that reading those would have taken", counts.saved_seconds)
    yield _labelled_counter("leftoff_computed_tokens", "Prompt tokens read, and why", "reason", counts.computed_tokens)
    yield _counter("leftoff_read_ahead_tokens", "Prompt tokens read while idle", counts.read_ahead_tokens)
    for metric in counts.first_token.collect():
        metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
        yield metric


def _swap_metrics(swaps: Swaps) -> Iterator[Metric]:
    yield _counter("leftoff_swaps", "Times that the model was loaded in its turn", swaps.num)
    yield _counter("leftoff_swap_milliseconds", "Time spent loading it", 1000 * swaps.seconds)
    yield _counter("leftoff_swap_spared_tokens", "Prompt tokens not read again after a load", swaps.spared_tokens)


def _tier_metrics(tiers: Sequence[TierView]) -> Iterator[Metric]:
    yield _labelled_gauge("leftoff_cache_bytes", "Bytes kept", "tier", {tier.name: tier.used_bytes for tier in tiers})
    entries = {tier.name: tier.entries for tier in tiers}
    yield _labelled_gauge("leftoff_cache_entries", "Resume points kept", "tier", entries)
    waiting = {tier.name: tier.waiting for tier in tiers if tier.waiting is not UNSET}
    if waiting:
        yield _labelled_gauge("leftoff_cache_waiting", "Pages and snapshots not written yet", "tier", waiting)
    evictions = {tier.name: tier.evictions for tier in tiers if tier.evictions is not UNSET}
    yield _labelled_counter("leftoff_cache_evictions", "Resume points given up for the budget", "tier", evictions)
    written = {tier.name: tier.written_bytes for tier in tiers if tier.written_bytes is not UNSET}
    yield _labelled_counter("leftoff_cache_written_bytes", "Bytes written since the start", "tier", written)


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _labelled_counter(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    return _filled(CounterMetricFamily(name, text, labels=[label]), values)


def _labelled_gauge(name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
    return _filled(GaugeMetricFamily(name, text, labels=[label]), values)


def _filled(family: CounterMetricFamily | GaugeMetricFamily, values: Mapping[str, float]) -> Metric:
    for key, value in sorted(values.items()):
        family.add_metric([key], value)
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _rate(num_tokens: int, seconds: float) -> float:
    return num_tokens / seconds if seconds > 0 else 0.0
