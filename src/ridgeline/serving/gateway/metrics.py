"""What Prometheus scrapes from a gateway: `ridgeline_gateway_*`.

Counters and histograms are fed by `proxy`; what a replica's state is now is read when asked.
"""

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ridgeline.serving.gateway.fleet import Fleet
from ridgeline.serving.gateway.record import Exchange, Record
from ridgeline.serving.policy.route import State

_TTFT_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_GAP_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_E2E_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """All families of one gateway, in a registry of their own."""

    def __init__(self, fleet: Fleet, record: Record) -> None:
        self._registry = CollectorRegistry()
        made: dict[str, Any] = {"namespace": "ridgeline_gateway", "registry": self._registry}
        of = ("model",)
        self._requests = Counter(
            "requests", "Requests that ended", ("model", "endpoint", "status"), **made
        )
        self._retries = Counter("retries", "Requests sent to a replica again", of, **made)
        self._prompt = Counter("prompt_tokens", "Tokens in prompts, by usage", of, **made)
        self._output = Counter("output_tokens", "Tokens in answers", of, **made)
        self._ttft = Histogram(
            "time_to_first_token_seconds", "To the first text", of, buckets=_TTFT_S, **made
        )
        self._gap = Histogram(
            "inter_chunk_seconds", "Between pieces of text", of, buckets=_GAP_S, **made
        )
        self._e2e = Histogram(
            "request_seconds", "Whole answered requests", of, buckets=_E2E_S, **made
        )
        self._registry.register(_Now(fleet, record))

    def gap(self, model: str, gap_ns: int) -> None:
        """Two pieces of a stream's text were this far apart."""
        self._gap.labels(model).observe(gap_ns / 1e9)

    def finished(self, exchange: Exchange) -> None:
        """A request has ended, well or not."""
        model = exchange.model
        self._requests.labels(model, exchange.endpoint, str(exchange.status)).inc()
        self._retries.labels(model).inc(exchange.retries)
        self._output.labels(model).inc(exchange.output_tokens)
        if exchange.usage is not None:
            self._prompt.labels(model).inc(exchange.usage.prompt_tokens)
        if exchange.ttft_s is not None:
            self._ttft.labels(model).observe(exchange.ttft_s)
        if exchange.status < 400:
            self._e2e.labels(model).observe(exchange.e2e_s)

    def text(self) -> bytes:
        """Prometheus text format, version 0.0.4."""
        return generate_latest(self._registry)


class _Now(Collector):
    """Gauges whose value is somebody else's; read at each scrape."""

    def __init__(self, fleet: Fleet, record: Record) -> None:
        self._fleet = fleet
        self._record = record

    def collect(self) -> Iterator[Metric]:
        total = GaugeMetricFamily("ridgeline_gateway_in_flight", "Requests being answered")
        total.add_metric([], self._record.in_flight)
        up = GaugeMetricFamily(
            "ridgeline_gateway_replica_up", "1 where a replica is ready", labels=["replica"]
        )
        running = GaugeMetricFamily(
            "ridgeline_gateway_replica_in_flight", "Requests sent there", labels=["replica"]
        )
        for replica in self._fleet.replicas:
            up.add_metric([replica.id], float(replica.view.state is State.READY))
            running.add_metric([replica.id], replica.view.running)
        yield from (total, up, running)
