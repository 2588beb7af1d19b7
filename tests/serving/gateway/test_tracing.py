"""Traces, and that they cost nothing where nobody asked for them."""

import gzip
import importlib.util
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytest.importorskip("opentelemetry.sdk", reason="needs opentelemetry-sdk: make setup-dev")

from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from ridgeline.errors import MissingExtraError
from ridgeline.serving.gateway.record import Exchange
from ridgeline.serving.gateway.sse import Usage
from ridgeline.serving.gateway.tracing import NoTracing, open_tracing
from ridgeline.serving.gateway.tracing_otel import OtelTracing

S = 10**9
THEIRS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
NOT_SAMPLED = THEIRS.removesuffix("01") + "00"


def exchange() -> Exchange:
    one = Exchange("req-1", "/v1/chat/completions", 5 * S, 1_000.0, model="chat", status=200)
    one.tenant, one.replica, one.reasons = "search", "chat-0", {"route": "warm"}
    one.admitted_ns, one.dequeued_ns, one.sent_ns = 6 * S, 7 * S, 8 * S
    one.first_ns, one.last_ns, one.ended_ns = 9 * S, 14 * S, 15 * S
    one.usage = Usage(100, 20)
    return one


def traced(headers: dict[str, str], one: Exchange, share: float = 1.0) -> dict[str, ReadableSpan]:
    exporter = InMemorySpanExporter()
    tracing = OtelTracing(exporter, share=share, worker="0")
    trace = tracing.begin(headers, one.started_unix_s)
    trace.finished(one)
    tracing.close()
    return {span.name: span for span in exporter.get_finished_spans()}


def test_a_request_becomes_spans_of_its_parts_at_their_own_times() -> None:
    spans = traced({}, exchange())
    assert set(spans) == {
        "POST /v1/chat/completions", "admission", "queue", "route", "chat chat", "prefill", "decode"
    }  # fmt: skip
    root, sent = spans["POST /v1/chat/completions"], spans["chat chat"]
    times = {name: (span.start_time, span.end_time) for name, span in spans.items()}
    assert times["POST /v1/chat/completions"] == (1_000 * S, 1_010 * S)
    assert times["queue"] == (1_001 * S, 1_002 * S)
    assert times["chat chat"] == (1_003 * S, 1_010 * S)
    assert times["decode"] == (1_004 * S, 1_009 * S)
    assert spans["route"].parent == sent.parent == root.context
    assert spans["prefill"].parent == sent.context
    attributes = dict(root.attributes or {})
    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gen_ai.usage.output_tokens"] == 20
    assert attributes["ridgeline.tenant"] == "search"
    assert attributes["ridgeline.reason.route"] == "warm"


def test_a_clients_trace_goes_on_and_reaches_the_replica() -> None:
    exporter = InMemorySpanExporter()
    tracing = OtelTracing(exporter, share=0.0, worker="0")
    trace = tracing.begin({"Traceparent": THEIRS, "TraceState": "a=b"}, 0.0)
    sent = {"TraceParent": THEIRS, "tracestate": "a=b", "X-Other": "kept"}
    trace.pass_on(sent)
    trace.finished(exchange())
    tracing.close()
    _, trace_id, parent, flags = sent["traceparent"].split("-")
    root = next(s for s in exporter.get_finished_spans() if s.name.startswith("POST"))
    assert trace_id == "0af7651916cd43dd8448eb211c80319c"
    assert f"{root.context.span_id:016x}" == parent
    assert f"{root.parent.span_id:016x}" == "b7ad6b7169203331"
    assert (flags, sent["tracestate"], sent["X-Other"]) == ("01", "a=b", "kept")
    assert "TraceParent" not in sent


@pytest.mark.parametrize("headers", [{}, {"traceparent": NOT_SAMPLED}, {"traceparent": "junk"}])
def test_what_nobody_samples_is_not_sent(headers: dict[str, str]) -> None:
    assert traced(headers, exchange(), share=0.0) == {}


def test_a_request_that_was_refused_has_only_the_parts_that_it_reached() -> None:
    refused = Exchange("id", "/v1/completions", 0, 0.0, status=429, admitted_ns=S, ended_ns=2 * S)
    spans = traced({}, refused)
    assert set(spans) == {"POST /v1/completions", "admission"}
    assert dict(spans["POST /v1/completions"].attributes or {})["error.type"] == "429"


def test_without_an_endpoint_nothing_is_imported_and_headers_stay() -> None:
    tracing = open_tracing(None)
    assert isinstance(tracing, NoTracing)
    headers = {"traceparent": THEIRS}
    trace = tracing.begin(headers, 0.0)
    trace.pass_on(headers)
    trace.finished(exchange())
    tracing.close()
    assert headers == {"traceparent": THEIRS}
    program = (
        "import sys; from ridgeline.serving.gateway.tracing import open_tracing; "
        "open_tracing(None); assert not any(m.startswith('opentelemetry') for m in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_an_endpoint_without_the_exporter_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"ridgeline\[otel\]"):
        open_tracing("http://127.0.0.1:4318")


def test_spans_arrive_at_a_collector_and_close_sends_the_last() -> None:
    wire = pytest.importorskip(
        "opentelemetry.proto.collector.trace.v1.trace_service_pb2",
        reason="needs the OTLP exporter: make setup-dev",
    )
    posted: list[tuple[str, bytes]] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            posted.append((self.path, body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tracing = open_tracing(f"http://127.0.0.1:{server.server_port}", worker="w1")
        tracing.begin({}, 1_000.0).finished(exchange())
        tracing.close()
        server.shutdown()
    ((path, body),) = posted
    assert path == "/v1/traces"
    (spans,) = wire.ExportTraceServiceRequest.FromString(body).resource_spans
    names = {span.name for scope in spans.scope_spans for span in scope.spans}
    assert {"POST /v1/chat/completions", "queue", "decode"} <= names
    about = {one.key: one.value.string_value for one in spans.resource.attributes}
    assert about["service.instance.id"] == "w1"
