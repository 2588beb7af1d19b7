"""What several workers of one gateway show as one: counts added, percentiles over all samples."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ridgeline.serving.gateway.arms import evidence
from ridgeline.serving.gateway.record import percentiles

_LATENCIES = ("ttft", "tpot", "e2e")
_COUNTED = ("in_flight", "prefilling_tokens", "requests", "failures")
_SUMS = ("in_flight", "requests", "output_tokens")


def merged_status(statuses: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One status from those of all workers. An empty gateway's where none answers."""
    if not statuses:
        return {}
    first = statuses[0]
    return {
        **first,
        **{name: sum(one[name] for one in statuses) for name in _SUMS},
        "uptime_s": max(one["uptime_s"] for one in statuses),
        "workers": len(statuses),
        "replicas": _replicas(statuses),
        "rates": _rates([one["rates"] for one in statuses]),
        "latency": _latency(statuses),
        "samples": {},
        "recent": _newest(statuses, "recent", 50),
        "errors": _newest(statuses, "errors", 20),
        "queues": _queues(statuses),
        "held": dict(sum((Counter(one["held"]) for one in statuses), Counter())),
        "arms": _arms(statuses),
    }


def _replicas(statuses: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each replica as the first worker sees it, with the requests of all."""
    merged: dict[str, dict[str, Any]] = {}
    for replica in (one for status in statuses for one in status["replicas"]):
        known = merged.setdefault(replica["id"], {**replica, **dict.fromkeys(_COUNTED, 0)})
        for name in _COUNTED:
            known[name] += replica[name]
    return list(merged.values())


def _rates(rates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    summed: dict[str, Any] = {
        name: sum(one[name] for one in rates) for name in rates[0] if name != "series"
    }
    summed["series"] = {
        name: [sum(values) for values in zip(*(one["series"][name] for one in rates), strict=True)]
        for name in rates[0]["series"]
    }
    return summed


def _latency(statuses: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Percentiles of one worker cannot be added: those of all samples are taken anew."""
    return {
        **statuses[0]["latency"],
        **{
            name: percentiles([value for one in statuses for value in one["samples"][name]])
            for name in _LATENCIES
        },
    }


def _arms(statuses: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        model: {version: msgspec.to_builtins(arm, str_keys=True) for version, arm in arms.items()}
        for model, arms in evidence(one["arms"] for one in statuses).items()
    }


def _newest(statuses: Sequence[Mapping[str, Any]], name: str, most: int) -> list[Any]:
    rows = [row for one in statuses for row in one[name]]
    return sorted(rows, key=lambda row: -row["at_unix_s"])[:most]


def _queues(statuses: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Each model's and tenant's line: counts are added, the oldest wait is the longest."""
    merged: dict[tuple[str, str, str], dict[str, Any]] = {}
    for status in statuses:
        for row in status.get("queues", []):
            key = (row["model"], row["class"], row["tenant"])
            if key not in merged:
                merged[key] = dict(row)
                continue
            known = merged[key]
            known["queued"] += row["queued"]
            known["running"] += row["running"]
            known["oldest_wait_s"] = max(known["oldest_wait_s"], row["oldest_wait_s"])
    return list(merged.values())
