"""The metrics and their documentation."""

import re
import tracemalloc
from decimal import Decimal
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from ridgeline.serving.gateway import metric_families
from ridgeline.serving.gateway.config import GatewayConfig, ReplicaAddress
from ridgeline.serving.gateway.fleet import Fleet
from ridgeline.serving.gateway.metric_families import FAMILIES, PREFIX
from ridgeline.serving.gateway.metrics import Metrics
from ridgeline.serving.gateway.record import Exchange, Record
from ridgeline.serving.gateway.sse import Details, Usage

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "observe.md"
S = 10**9


def exchange(**other) -> Exchange:
    own = {
        "model": "chat",
        "tenant": "search",
        "status": 200,
        "first_ns": S,
        "last_ns": 2 * S,
        "ended_ns": 3 * S,
        "usage": Usage(100, 20, Details(64)),
        "usd": Decimal("0.25"),
    }
    return Exchange("id", "/v1/completions", 0, 0.0, **{**own, **other})


def everything() -> Metrics:
    """A gateway to which each thing has happened once."""
    fleet = Fleet(GatewayConfig())
    fleet.add(ReplicaAddress("chat-0", "http://127.0.0.1:1"))
    metrics = Metrics(fleet, Record(0))
    metrics.gap("chat", 10**7)
    metrics.rejected("search", "budget", "later")
    metrics.queued("default", 0.2)
    metrics.routed("chat", "prefix-sticky", 64)
    metrics.routed("chat", "prefix-sticky", 0)
    metrics.finished(exchange(retries=1, resumed=2))
    metrics.committed(17, 0.002)
    metrics.settled("usage")
    metrics.recovered("replica log")
    metrics.mismatched("chat")
    metrics.dropped(3)
    metrics.reads(queue_length=lambda: {"bulk": 4}, reservations_open=lambda: 5)
    return metrics


def samples(text: bytes) -> dict[tuple[str, ...], float]:
    return {
        (sample.name.removeprefix(PREFIX), *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_every_metric_is_in_the_guide_and_nothing_else() -> None:
    section = GUIDE.read_text(encoding="utf-8").partition("## Metrics")[2].partition("\n## ")[0]
    rows = [line.split("|") for line in section.splitlines() if line.startswith("| `")]
    told = {
        name: set(re.findall(r"`(\w+)`", labels))
        for _, named, labels, *_ in rows
        for name in re.findall(r"`(\w+)`", named)
    }
    assert told == {one.sample: set(one.labels) for one in FAMILIES.values()}


def test_the_text_has_every_family_of_the_table_and_no_other() -> None:
    types = re.findall(rf"# TYPE {PREFIX}(\S+) (\S+)", everything().text().decode())
    assert dict(types) == {one.sample: one.kind for one in FAMILIES.values()}


def test_each_thing_that_happened_is_counted_where_it_belongs() -> None:
    seen = samples(everything().text())
    assert seen["requests_total", "/v1/completions", "200", "chat", "search"] == 1
    assert seen["rejected_total", "budget", "later", "search"] == 1
    assert seen["prompt_tokens_total", "chat", "search"] == 100
    assert seen["cached_tokens_total", "chat", "search"] == 64
    assert seen["output_tokens_total", "chat", "search"] == 20
    assert seen["charged_usd_total", "chat", "search"] == 0.25
    assert seen["time_to_first_token_seconds_bucket", "1", "chat"] == 1
    assert seen["time_to_first_token_seconds_bucket", "0.5", "chat"] == 0
    assert seen["request_seconds_sum", "chat"] == 3
    assert seen["queue_length", "bulk"] == 4
    assert seen["routed_total", "chat", "prefix-sticky", "warm"] == 1
    assert seen["routed_total", "chat", "cold", "prefix-sticky"] == 1
    assert seen["prefix_hit_tokens_total", "chat"] == 64
    assert (seen["retries_total", "chat"], seen["resumed_streams_total", "chat"]) == (1, 2)
    assert seen["ledger_commit_operations_bucket", "16"] == 0
    assert seen["ledger_commit_operations_bucket", "32"] == 1
    assert seen["reservations_open",] == 5
    assert seen["recovered_total", "replica log"] == 1
    assert seen["replica_state", "chat-0", "starting"] == 1
    assert seen["replica_state", "chat-0", "ready"] == 0
    assert seen["replica_up", "chat-0"] == 0


def test_a_request_that_failed_has_no_latency_and_an_unasked_gauge_is_missing() -> None:
    metrics = Metrics(Fleet(GatewayConfig()), Record(0))
    metrics.finished(exchange(status=502, first_ns=0, usage=None, usd=Decimal(0)))
    seen = samples(metrics.text())
    assert seen["requests_total", "/v1/completions", "502", "chat", "search"] == 1
    assert not any(name[0].startswith(("request_seconds", "time_to_first")) for name in seen)
    assert not any(name[0] in ("queue_length", "reservations_open") for name in seen)


def test_tenants_without_end_make_no_series_without_end(monkeypatch) -> None:
    monkeypatch.setattr(metric_families, "MOST_SERIES", 10)
    metrics = Metrics(Fleet(GatewayConfig()), Record(0))
    for number in range(100):
        metrics.finished(exchange(tenant=f"tenant-{number}"))
    seen = samples(metrics.text())
    requests = {key: value for key, value in seen.items() if key[0] == "requests_total"}
    assert len(requests) == 11
    assert sum(requests.values()) == 100
    assert requests["requests_total", "other", "other", "other", "other"] == 90


def test_memory_stays_flat_over_requests() -> None:
    metrics = Metrics(Fleet(GatewayConfig()), Record(0))
    metrics.finished(exchange())
    tracemalloc.start()
    for _ in range(5_000):
        metrics.finished(exchange())
    grown_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert grown_bytes < 20_000
