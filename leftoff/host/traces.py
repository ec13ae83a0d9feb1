"""OpenTelemetry: a span for each request that ended, by the GenAI conventions, with the cache's reasons as `leftoff.*`.

Spans are made from the record of a request, after its end: no request waits for them. They have no words of
conversations. It takes `pip install 'leftoff[otel]'`.
"""

import threading
from collections.abc import Mapping

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from leftoff import __version__
from leftoff.host.request_log import RequestRecord

_NS_PER_MS = 1_000_000
_STOP_S = 2.0


class Traces:
    """Makes spans of records. Add `add` to the watchers of a request log."""

    def __init__(self, processor: SpanProcessor) -> None:
        own = Resource({"service.name": "leftoff", "service.version": __version__})
        resource = own.merge(OTELResourceDetector().detect())  # OTEL_SERVICE_NAME wins
        self._provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("leftoff", __version__)
        self._incoming = TraceContextTextMapPropagator()

    @classmethod
    def to(cls, url: str) -> "Traces":
        """Sends them to a collector, by OTLP over HTTP. Headers and the like are as OTEL_EXPORTER_OTLP_* say."""
        return cls(BatchSpanProcessor(OTLPSpanExporter(endpoint=f"{url.rstrip('/')}/v1/traces")))

    def add(self, record: RequestRecord) -> None:
        """Makes the span, below that of the client if it has sent one, and its parts: waiting, prefill and decoding."""
        attributes = _attributes(record)
        at = end = int(1000 * record.at) * _NS_PER_MS
        parts = {"wait": record.waited_ms, "prefill": record.prompt_ms, "decode": record.generation_ms}
        at -= int(sum(parts.values()) * _NS_PER_MS)
        span = self._tracer.start_span(
            f"{attributes['gen_ai.operation.name']} {record.model}",
            self._incoming.extract({"traceparent": record.caller.trace}),
            SpanKind.SERVER,
            attributes,
            start_time=at,
        )
        for name, ms in parts.items():
            part = self._tracer.start_span(name, set_span_in_context(span), start_time=at)
            at += int(ms * _NS_PER_MS)
            part.end(at)
        if record.error is not None:
            span.set_attribute("error.type", record.finish)
            span.set_status(Status(StatusCode.ERROR, record.error))
        span.end(end)

    def close(self) -> None:
        """Sends what was not sent yet, unless the collector does not answer: no server's end waits long for that."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(_STOP_S)


def _attributes(record: RequestRecord) -> Mapping[str, str | int | float | list[str]]:
    caller = record.caller
    optional = {
        "gen_ai.conversation.id": caller.conversation,
        "leftoff.first_token_ms": record.first_token_ms,
        "leftoff.waited_for": record.waited_for,
    }
    reasons = {
        f"leftoff.computed_tokens.{reason.replace(' ', '_')}": tokens for reason, tokens in record.reasons.items()
    }
    return {
        "gen_ai.operation.name": "chat" if caller.conversation else "text_completion",
        "gen_ai.provider.name": "leftoff",
        "gen_ai.request.model": record.model,
        "gen_ai.response.model": record.model,
        "gen_ai.response.id": record.id,
        "gen_ai.response.finish_reasons": [record.finish],
        "gen_ai.usage.input_tokens": record.prompt_tokens,
        "gen_ai.usage.output_tokens": record.generated,
        "gen_ai.usage.cache_read.input_tokens": record.reused,
        "http.route": caller.route,
        "user_agent.name": caller.client,
        "leftoff.reused_from": record.source,
        "leftoff.saved_ms": record.saved_ms,
        "leftoff.computed_tokens": record.computed,
        **reasons,
        **{name: value for name, value in optional.items() if value},
    }
