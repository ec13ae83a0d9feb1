"""Spans of requests: with the real SDK, in memory and by OTLP to a collector that this test is."""

import gzip
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import httpx
import pytest

pytest.importorskip("opentelemetry.sdk", reason="pip install 'leftoff[otel]'")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from leftoff.host.build import open_host
from leftoff.host.callers import Caller
from leftoff.host.request_log import RequestRecord
from leftoff.host.traces import Traces
from leftoff.server.server import serving
from tests.cli.running import serving as serving_process
from tests.patience import PATIENCE_S, POLL_S
from tests.server.fixtures import settings

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
BODY = {"messages": [{"role": "user", "content": "where does the road end"}], "max_tokens": 4, "temperature": 0}


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


def test_a_request_is_a_span_in_the_trace_of_its_client(exporter: InMemorySpanExporter) -> None:
    traces = Traces(SimpleSpanProcessor(exporter))
    with open_host(settings()) as host, serving(host) as url:
        host.log.watchers.append(traces.add)
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01", "user-agent": "claude-cli/2.1"}
        messages: list[dict[str, str]] = []
        for question in ("where does the road end", "and where does it begin"):
            messages.append({"role": "user", "content": question})
            body = BODY | {"messages": messages}
            reply = httpx.post(f"{url}/v1/chat/completions", json=body, headers=headers, timeout=PATIENCE_S).json()
            messages.append(reply["choices"][0]["message"])
        record = host.log.records[0]
    assert "trace" not in record.as_dict()
    *parts, span = exporter.get_finished_spans()[4:]
    attributes = dict(span.attributes or {})
    assert span.name == f"chat {host.name}"
    assert span.kind is SpanKind.SERVER
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" == TRACE
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == PARENT
    assert attributes["gen_ai.response.id"] == reply["id"]
    assert attributes["gen_ai.usage.input_tokens"] == reply["usage"]["prompt_tokens"]
    assert attributes["gen_ai.usage.output_tokens"] == reply["usage"]["completion_tokens"]
    cached = reply["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert attributes["gen_ai.usage.cache_read.input_tokens"] == cached > 0
    assert attributes["user_agent.name"] == "Claude Code"
    reasons = {name: value for name, value in attributes.items() if name.startswith("leftoff.computed_tokens.")}
    assert sum(reasons.values()) == attributes["leftoff.computed_tokens"] == record.computed > 0  # type: ignore[arg-type]
    assert not any("road" in str(value) for value in attributes.values()), "no words of conversations"
    assert [part.name for part in parts] == ["wait", "prefill", "decode"]
    assert all(part.parent == span.context for part in parts)
    assert parts[0].start_time == span.start_time
    assert [part.end_time for part in parts[:2]] == [part.start_time for part in parts[1:]]
    assert span.resource.attributes["service.name"] == "leftoff"


def test_a_request_that_failed_is_an_error(exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "ours")
    caller = Caller("curl", "/completion", trace="nonsense")
    Traces(SimpleSpanProcessor(exporter)).add(
        RequestRecord("id", 1.0, caller, "tiny", finish="failed", error="out of memory", reasons={"other salt": 3})
    )
    span = exporter.get_finished_spans()[-1]
    assert span.name == "text_completion tiny"
    assert span.parent is None
    assert span.status.status_code is StatusCode.ERROR
    assert span.status.description == "out of memory"
    assert (span.attributes or {})["leftoff.computed_tokens.other_salt"] == 3
    assert span.resource.attributes["service.name"] == "ours"


@contextmanager
def collecting() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """A collector of OTLP over HTTP: its address, and what it was sent."""
    received: list[ExportTraceServiceRequest] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            received.append(ExportTraceServiceRequest.FromString(self._body()))
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def _body(self) -> bytes:
            data = self.rfile.read(int(self.headers["content-length"]))
            return gzip.decompress(data) if self.headers.get("content-encoding") == "gzip" else data

        def log_message(self, *_: object) -> None: ...

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", received
        server.shutdown()
        thread.join()


def test_a_server_sends_its_spans_to_a_collector_and_the_last_ones_when_it_ends() -> None:
    with collecting() as (url, received):
        with serving_process("--otel", url) as server:
            assert server.url, server.log
            httpx.post(f"{server.url}/v1/chat/completions", json=BODY, timeout=PATIENCE_S).raise_for_status()
            assert server.stop() == 0
        scopes = [scope for each in received for of in each.resource_spans for scope in of.scope_spans]
    spans = [span for scope in scopes for span in scope.spans]
    names = sorted(span.name for span in spans)
    assert [re.sub(" .*", "", name) for name in names] == ["chat", "decode", "prefill", "wait"]


def test_a_collector_that_is_not_there_holds_nothing_up() -> None:
    with serving_process("--otel", "http://127.0.0.1:9") as server:
        assert server.url, server.log
        httpx.post(f"{server.url}/v1/chat/completions", json=BODY, timeout=PATIENCE_S).raise_for_status()
        assert server.stop() == 0
