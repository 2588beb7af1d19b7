"""What Prometheus scrapes from a gateway: `ridgeline_gateway_*`.

Counters and histograms are fed by `proxy` and the ledger; what a replica's state is now, and
what others count for themselves, is read when asked. Label values are tenants and models that
exist, never words of a client (`metric_families` has the table and bounds it).
"""

import resource
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from ridgeline.serving.gateway.fleet import Fleet
from ridgeline.serving.gateway.metric_families import Counts, Spread, gauge
from ridgeline.serving.gateway.record import Exchange, Record
from ridgeline.serving.policy.states import State

_STATM = Path("/proc/self/statm")
_PAGE_BYTES = resource.getpagesize()


class Metrics:
    """All families of one gateway, in a registry of their own."""

    def __init__(self, fleet: Fleet, record: Record) -> None:
        self._requests = Counts("requests")
        self._rejected = Counts("rejected")
        self._prompt = Counts("prompt_tokens")
        self._cached = Counts("cached_tokens")
        self._output = Counts("output_tokens")
        self._charged = Counts("charged_usd")
        self._ttft = Spread("time_to_first_token_seconds")
        self._gap = Spread("inter_chunk_seconds")
        self._e2e = Spread("request_seconds")
        self._wait = Spread("queue_wait_seconds")
        self._routed = Counts("routed")
        self._hits = Counts("prefix_hit_tokens")
        self._retries = Counts("retries")
        self._resumed = Counts("resumed_streams")
        self._commit = Spread("ledger_commit_seconds")
        self._operations = Spread("ledger_commit_operations")
        self._settled = Counts("settled")
        self._recovered = Counts("recovered")
        self._mismatches = Counts("count_mismatches")
        self._dropped = Counts("log_lines_dropped")
        self._now = _Now(fleet, record)
        self._registry = CollectorRegistry()
        self._registry.register(_All([*self._counted(), self._now]))

    def _counted(self) -> list[Counts | Spread]:
        return [one for one in vars(self).values() if isinstance(one, Counts | Spread)]

    def gap(self, model: str, gap_ns: int) -> None:
        """Two pieces of a stream's text were this far apart."""
        self._gap.observe((model,), gap_ns / 1e9)

    def rejected(self, tenant: str, limit: str, kind: str) -> None:
        """Refused. `limit` says by which ("budget", "queue", ...), `kind` is "later" or "never"."""
        self._rejected.add((tenant, limit, kind))

    def queued(self, priority_class: str, waited_s: float) -> None:
        """A request has left the queue, for a replica or for good."""
        self._wait.observe((priority_class,), waited_s)

    def routed(self, model: str, rule: str, warm_tokens: int) -> None:
        """A rule has chosen; `warm_tokens` of the prompt are believed to be there already."""
        self._routed.add((model, rule, "warm" if warm_tokens else "cold"))
        if warm_tokens:
            self._hits.add((model,), warm_tokens)

    def finished(self, exchange: Exchange) -> None:
        """A request has ended, well or not."""
        model = exchange.model
        used = (exchange.tenant, model)
        self._requests.add((*used, exchange.endpoint, str(exchange.status)))
        self._output.add(used, exchange.output_tokens)
        if exchange.usage is not None:
            self._prompt.add(used, exchange.prompt_tokens)
            self._cached.add(used, exchange.cached_tokens)
        if exchange.usd:
            self._charged.add(used, float(exchange.usd))
        if exchange.retries:
            self._retries.add((model,), exchange.retries)
        if exchange.resumed:
            self._resumed.add((model,), exchange.resumed)
        if exchange.ttft_s is not None:
            self._ttft.observe((model,), exchange.ttft_s)
        if exchange.status < 400:
            self._e2e.observe((model,), exchange.e2e_s)

    def committed(self, operations: int, took_s: float) -> None:
        """The ledger has written so many operations in one transaction. From its own thread."""
        self._commit.observe((), took_s)
        self._operations.observe((), operations)

    def settled(self, basis: str) -> None:
        """An entry was written, by this count."""
        self._settled.add((basis,))

    def recovered(self, basis: str) -> None:
        """Recovery wrote an entry for a request whose worker did not."""
        self._recovered.add((basis,))

    def mismatched(self, model: str) -> None:
        """A replica's usage is far from our own count."""
        self._mismatches.add((model,))

    def dropped(self, lines: int) -> None:
        """Log lines that were not written, since the disk was too slow."""
        self._dropped.add((), lines)

    def reads(
        self,
        *,
        queue_length: Callable[[], Mapping[str, int]] | None = None,
        reservations_open: Callable[[], int] | None = None,
    ) -> None:
        """Whom to ask at each scrape: waiting requests by class, and reservations."""
        self._now.queue_length = queue_length or self._now.queue_length
        self._now.reservations_open = reservations_open or self._now.reservations_open

    def text(self) -> bytes:
        """Prometheus text format, version 0.0.4."""
        return generate_latest(self._registry)


class _Now:
    """Gauges whose value is somebody else's; read at each scrape. Unknown ones are missing."""

    def __init__(self, fleet: Fleet, record: Record) -> None:
        self._fleet = fleet
        self._record = record
        self.queue_length: Callable[[], Mapping[str, int]] | None = None
        self.reservations_open: Callable[[], int] | None = None

    def metrics(self) -> Iterator[Metric]:
        """All of them, now."""
        replicas = self._fleet.replicas
        yield gauge("in_flight", {(): self._record.in_flight})
        yield gauge("replica_up", {(r.id,): r.view.state is State.READY for r in replicas})
        yield gauge("replica_in_flight", {(r.id,): r.view.running for r in replicas})
        yield gauge(
            "replica_state",
            {(r.id, state.value): r.view.state is state for r in replicas for state in State},
        )
        if self.queue_length is not None:
            yield gauge("queue_length", {(name,): n for name, n in self.queue_length().items()})
        if self.reservations_open is not None:
            yield gauge("reservations_open", {(): self.reservations_open()})
        if (resident := _resident_bytes()) is not None:
            yield gauge("process_resident_memory_bytes", {(): resident})


class _All(Collector):
    def __init__(self, parts: list[Counts | Spread | _Now]) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        for part in self._parts:
            if isinstance(part, _Now):
                yield from part.metrics()
            else:
                yield part.metric()


def _resident_bytes() -> int | None:
    """Memory of this process; None where the system has no /proc."""
    try:
        return int(_STATM.read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
    except (OSError, LookupError, ValueError):
        return None
