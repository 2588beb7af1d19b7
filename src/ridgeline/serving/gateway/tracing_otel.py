"""Requests as OpenTelemetry spans, with the names of its `gen_ai` conventions.

    POST /v1/chat/completions              server   the whole request
    ├── admission, queue, route            internal
    └── chat llama                         client   sent to the replica, until the end
        └── prefill, decode                internal

Imported only by `tracing`, where an endpoint is configured.
"""

import importlib
from collections.abc import Mapping

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

import ridgeline
from ridgeline.serving.gateway.record import Exchange
from ridgeline.serving.gateway.tracing import Trace

_HEADERS = TraceContextTextMapPropagator()
_NAMES = ("traceparent", "tracestate")
_OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/responses": "chat",
    "/v1/messages": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}


class OtelTracing:
    """Spans for an exporter, sent in batches by a thread of the SDK's."""

    def __init__(self, exporter: SpanExporter, *, share: float, worker: str) -> None:
        about = {
            "service.name": "ridgeline-gateway",
            "service.version": ridgeline.__version__,
            "service.instance.id": worker,
        }
        self._provider = TracerProvider(
            resource=Resource.create(about), sampler=ParentBased(TraceIdRatioBased(share))
        )
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("ridgeline.gateway", ridgeline.__version__)

    def begin(self, headers: Mapping[str, str], unix_s: float) -> Trace:
        """A request's span, within the client's trace where its header names one."""
        theirs = {name.lower(): value for name, value in headers.items() if name.lower() in _NAMES}
        within = _HEADERS.extract(theirs, Context())
        began_ns = round(unix_s * 1e9)
        root = self._tracer.start_span("request", within, SpanKind.SERVER, start_time=began_ns)
        return _Trace(self, root)

    def close(self) -> None:
        """Send what is left, then stop."""
        self._provider.shutdown()

    def part(self, parent: Span, name: str, span: tuple[int, int], kind: SpanKind) -> Span:
        """A span that is over already."""
        within = set_span_in_context(parent, Context())
        made = self._tracer.start_span(name, within, kind, start_time=span[0])
        made.end(end_time=span[1])
        return made


class _Trace:
    def __init__(self, tracing: OtelTracing, root: Span) -> None:
        self._tracing = tracing
        self._root = root

    def pass_on(self, headers: dict[str, str]) -> None:
        """The request's span becomes the parent of the replica's."""
        for name in [name for name in headers if name.lower() in _NAMES]:
            del headers[name]
        _HEADERS.inject(headers, set_span_in_context(self._root, Context()))

    def finished(self, exchange: Exchange) -> None:
        """The parts, from the exchange's times; then the whole."""
        root = self._root
        if not root.is_recording():
            return
        root.update_name(f"POST {exchange.endpoint}")
        root.set_attributes(_about(exchange))
        if exchange.status >= 500:
            root.set_status(Status(StatusCode.ERROR, exchange.error[:300]))
        self._parts(exchange)
        root.end(end_time=_unix_ns(exchange, exchange.ended_ns))

    def _parts(self, exchange: Exchange) -> None:
        at = exchange.started_ns
        spans: dict[str, tuple[int, int]] = {}
        for name, spent_s in exchange.split_s().items():
            until = at + round(spent_s * 1e9)
            spans[name] = (_unix_ns(exchange, at), _unix_ns(exchange, until))
            at = until
        for name in ("admission", "queue", "route"):
            if name in spans:
                self._tracing.part(self._root, name, spans[name], SpanKind.INTERNAL)
        if not exchange.sent_ns:
            return
        sent = (_unix_ns(exchange, exchange.sent_ns), _unix_ns(exchange, exchange.ended_ns))
        called = f"{_operation(exchange)} {exchange.model}"
        replica = self._tracing.part(self._root, called, sent, SpanKind.CLIENT)
        for name in ("prefill", "decode"):
            if name in spans:
                self._tracing.part(replica, name, spans[name], SpanKind.INTERNAL)


def _about(exchange: Exchange) -> dict[str, AttributeValue]:
    """What OpenTelemetry has a name for, and under `ridgeline.` what it has none for."""
    about: dict[str, AttributeValue] = {
        "gen_ai.operation.name": _operation(exchange),
        "gen_ai.provider.name": "ridgeline",
        "gen_ai.request.model": exchange.model,
        "gen_ai.usage.input_tokens": exchange.prompt_tokens,
        "gen_ai.usage.output_tokens": exchange.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": exchange.cached_tokens,
        "http.request.method": "POST",
        "http.response.status_code": exchange.status,
        "url.path": exchange.endpoint,
        "ridgeline.request_id": exchange.id,
        "ridgeline.tenant": exchange.tenant,
        "ridgeline.replica": exchange.replica,
        "ridgeline.retries": exchange.retries,
        "ridgeline.resumed": exchange.resumed,
    }
    if exchange.status >= 400:
        about["error.type"] = str(exchange.status)
    if exchange.ttft_s is not None:
        about["ridgeline.time_to_first_token_s"] = exchange.ttft_s
    for policy, reason in exchange.reasons.items():
        about[f"ridgeline.reason.{policy}"] = reason
    return about


def _operation(exchange: Exchange) -> str:
    return _OPERATIONS.get(exchange.endpoint, "chat")


def _unix_ns(exchange: Exchange, monotonic_ns: int) -> int:
    return round(exchange.started_unix_s * 1e9) + monotonic_ns - exchange.started_ns


def exporter_to(endpoint: str) -> SpanExporter:
    """OTLP over HTTP, to the usual path below the endpoint."""
    there = importlib.import_module("opentelemetry.exporter.otlp.proto.http.trace_exporter")
    exporter = there.OTLPSpanExporter(endpoint=f"{endpoint.rstrip('/')}/v1/traces")
    assert isinstance(exporter, SpanExporter)
    return exporter
