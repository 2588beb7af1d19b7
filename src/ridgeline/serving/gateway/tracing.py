"""Traces of requests, where they are asked for: OpenTelemetry, sent by OTLP over HTTP.

Without an endpoint nothing of OpenTelemetry is imported, a request costs one call of an empty
method, and a client's own `traceparent` still reaches the replica, as every header does. With one,
a span is begun before anything is decided (so that its id can be passed on) and the spans of the
parts are made from the exchange's own times once the request has ended.
"""

import importlib.util
from collections.abc import Mapping
from typing import Protocol

from ridgeline.errors import MissingExtraError
from ridgeline.serving.gateway.record import Exchange


class Trace(Protocol):
    """One request's trace."""

    def pass_on(self, headers: dict[str, str]) -> None:
        """Put W3C's `traceparent` into the header for a replica, in place of the client's."""

    def finished(self, exchange: Exchange) -> None:
        """The request has ended; call it once, whatever happened."""


class Tracing(Protocol):
    """Where traces begin."""

    def begin(self, headers: Mapping[str, str], unix_s: float) -> Trace:
        """A request has come, with the client's header, which may continue a trace."""

    def close(self) -> None:
        """Send what is left."""


class NoTrace:
    """Says nothing."""

    def pass_on(self, headers: dict[str, str]) -> None:
        """The client's own header stays as it is."""

    def finished(self, exchange: Exchange) -> None:
        """Nothing."""


class NoTracing:
    """No endpoint: every request has the same trace that does nothing."""

    _trace = NoTrace()

    def begin(self, headers: Mapping[str, str], unix_s: float) -> Trace:  # noqa: ARG002
        """The one that does nothing."""
        return self._trace

    def close(self) -> None:
        """Nothing."""


def open_tracing(endpoint: str | None, *, share: float = 1.0, worker: str = "0") -> Tracing:
    """Traces to `endpoint` (e.g. http://127.0.0.1:4318), of a share of those that nobody began.

    Raises MissingExtraError where OpenTelemetry is not installed.
    """
    if endpoint is None:
        return NoTracing()
    try:
        found = importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http")
    except ModuleNotFoundError:  # a parent of it
        found = None
    if found is None:
        raise MissingExtraError(
            "traces need the part [otel] of Ridgeline (OpenTelemetry is not installed)",
            where="gateway.tracing",
            remedy="pip install 'ridgeline[otel]'",
        )
    from ridgeline.serving.gateway.tracing_otel import OtelTracing, exporter_to

    return OtelTracing(exporter_to(endpoint), share=share, worker=worker)
