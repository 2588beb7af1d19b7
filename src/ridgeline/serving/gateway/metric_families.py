"""Every metric of a gateway in one table, and the cheap things that count them.

The table is the law: a metric that is not here cannot be counted, and what is here says how the
numbers of several workers become one. The guide, the dashboard and the alerts are tested against
it. Text is made only when somebody scrapes; to count is an addition in a dict, an order of
magnitude cheaper than prometheus_client's own counters.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

PREFIX = "ridgeline_gateway_"
#: Series of one family; further label values count as `OTHER`. Tenants and models can be made
#: without end, and a scrape must stay small.
MOST_SERIES = 5_000
OTHER = "other"

_TTFT_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_GAP_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_E2E_S = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_WAIT_S = (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
_COMMIT_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: counter, histogram or gauge. `merged` is how workers' gauges become one."""

    name: str
    kind: str
    about: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    merged: str = "sum"

    @property
    def sample(self) -> str:
        """The name that a scrape shows: a counter's ends in `_total`."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


_USED = ("tenant", "model")
_TABLE = (
    Family("requests", "counter", "Requests that ended", (*_USED, "endpoint", "status")),
    Family("rejected", "counter", "Requests refused by a limit", ("tenant", "limit", "kind")),
    Family("prompt_tokens", "counter", "Tokens in prompts, by usage", _USED),
    Family("cached_tokens", "counter", "Of those, found in a replica's cache", _USED),
    Family("output_tokens", "counter", "Tokens in answers", _USED),
    Family("charged_usd", "counter", "Charged, in US dollars", _USED),
    Family("time_to_first_token_seconds", "histogram", "To the first text", ("model",), _TTFT_S),
    Family("inter_chunk_seconds", "histogram", "Between pieces of text", ("model",), _GAP_S),
    Family("request_seconds", "histogram", "Whole answered requests", ("model",), _E2E_S),
    Family("queue_wait_seconds", "histogram", "In the queue, once left", ("class",), _WAIT_S),
    Family("queue_length", "gauge", "Requests that wait", ("class",)),
    Family("routed", "counter", "Routing decisions", ("model", "rule", "cache")),
    Family("prefix_hit_tokens", "counter", "Prompt tokens routed to where they are", ("model",)),
    Family("retries", "counter", "Requests sent to a replica again", ("model",)),
    Family("resumed_streams", "counter", "Streams that went on elsewhere", ("model",)),
    Family("in_flight", "gauge", "Requests being answered"),
    Family("replica_up", "gauge", "1 where a replica is ready", ("replica",), merged="max"),
    Family("replica_state", "gauge", "1 for its state", ("replica", "state"), merged="max"),
    Family("replica_in_flight", "gauge", "Requests sent there", ("replica",)),
    Family("ledger_commit_seconds", "histogram", "One commit of the ledger", (), _COMMIT_S),
    Family("ledger_commit_operations", "histogram", "Operations in a commit", (), _ROWS),
    Family("reservations_open", "gauge", "Running requests that hold tokens and money"),
    Family("settled", "counter", "Ledger entries, by whose count", ("basis",)),
    Family("recovered", "counter", "Entries that recovery wrote", ("basis",)),
    Family("count_mismatches", "counter", "Usage far from our own count", ("model",)),
    Family("log_lines_dropped", "counter", "Log lines that a slow disk cost"),
    Family("process_resident_memory_bytes", "gauge", "Memory of the gateway"),
)
FAMILIES: Mapping[str, Family] = MappingProxyType({one.name: one for one in _TABLE})

Labels = tuple[str, ...]


class Counts:
    """A counter: for each combination of labels a sum."""

    __slots__ = ("family", "sums")

    def __init__(self, name: str) -> None:
        self.family = FAMILIES[name]
        self.sums: dict[Labels, float] = {}

    def add(self, labels: Labels, amount: float = 1) -> None:
        """So much more."""
        sums = self.sums
        if labels in sums:
            sums[labels] += amount
        else:
            known = _bounded(labels, sums)
            sums[known] = sums.get(known, 0) + amount

    def metric(self) -> Metric:
        """For a scrape."""
        shown = CounterMetricFamily(
            PREFIX + self.family.name, self.family.about, labels=self.family.labels
        )
        for labels, total in list(self.sums.items()):
            shown.add_metric(labels, total)
        return shown


class Spread:
    """A histogram: for each combination of labels the counts by bound, and their sum."""

    __slots__ = ("family", "rows")

    def __init__(self, name: str) -> None:
        self.family = FAMILIES[name]
        self.rows: dict[Labels, list[float]] = {}

    def observe(self, labels: Labels, value: float) -> None:
        """One more observation; the row's last place is the sum."""
        row = self.rows.get(labels)
        if row is None:
            labels = _bounded(labels, self.rows)
            row = self.rows.setdefault(labels, [0] * (len(self.family.bounds) + 2))
        row[bisect_left(self.family.bounds, value)] += 1
        row[-1] += value

    def metric(self) -> Metric:
        """For a scrape."""
        shown = HistogramMetricFamily(
            PREFIX + self.family.name, self.family.about, labels=self.family.labels
        )
        names = [*(f"{float(bound):g}" for bound in self.family.bounds), "+Inf"]
        for labels, row in list(self.rows.items()):
            running, buckets = 0.0, []
            for name, count in zip(names, row, strict=False):
                running += count
                buckets.append((name, running))
            shown.add_metric(labels, buckets, sum_value=row[-1])
        return shown


def gauge(name: str, values: Mapping[Labels, float]) -> Metric:
    """A gauge, read now."""
    family = FAMILIES[name]
    shown = GaugeMetricFamily(PREFIX + name, family.about, labels=family.labels)
    for labels, value in values.items():
        shown.add_metric(labels, value)
    return shown


def _bounded(labels: Labels, known: Mapping[Labels, object]) -> Labels:
    return labels if len(known) < MOST_SERIES else (OTHER,) * len(labels)


def names(families: Sequence[Family] = _TABLE) -> set[str]:
    """Every sample name that a scrape may show, with a histogram's three."""
    found = set()
    for one in families:
        ends = ("_bucket", "_sum", "_count") if one.kind == "histogram" else ("",)
        found |= {PREFIX + one.sample + end for end in ends}
    return found
