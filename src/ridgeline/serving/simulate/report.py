"""What a run says, as plain values: for JSON, for a table, for comparing.

Percentiles are nearest rank. Goodput counts requests that were answered within the SLO, of all that
were asked; who was refused or left did not get it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgeline.serving.simulate.asked import End
from ridgeline.serving.simulate.outcome import Outcome, percentile
from ridgeline.serving.simulate.stability import balance

SHARES = (0.5, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class Slo:
    """What is promised."""

    ttft_s: float
    tpot_s: float
    attainment: float = 0.95


def report(outcome: Outcome, slo: Slo | None = None) -> dict[str, Any]:
    """One run; numbers that there are none of are None."""
    columns = outcome.columns
    said = int(columns["said_tokens"][outcome.answered].sum())
    steady = balance(columns["at_ns"], columns["first_ns"], columns["done_ns"])
    found: dict[str, Any] = {
        "requests": outcome.requests,
        "ends": {end.name.lower(): count for end in End if (count := outcome.count(end))},
        "lasted_s": outcome.lasted_s,
        "stable": steady.is_stable,
        "in_flight": {"third_quarter": steady.flying[0], "last_quarter": steady.flying[1]},
        "wait_s": {"third_quarter": steady.wait_s[0], "last_quarter": steady.wait_s[1]},
        "requests_per_s": _each_second(outcome.requests, outcome),
        "output_tokens_per_s": _each_second(said, outcome),
        "ttft_s": percentiles(outcome.ttft_s()),
        "tpot_s": percentiles(outcome.tpot_s()),
        "e2e_s": percentiles(outcome.e2e_s()),
        "prefix_hit_rate": outcome.hit_rate,
        "replica_hours": outcome.replica_hours,
        "usd": float(outcome.usd),
        "charged_usd": {name: float(usd) for name, usd in sorted(outcome.spent_usd.items())},
        "replicas": [replica(one, outcome.lasted_s) for one in outcome.replicas],
        "scaled": [
            {"at_s": at_s, "model": model, "replicas": count, "reason": reason}
            for at_s, model, count, reason in outcome.scaled
        ],
        "events": outcome.events,
        "digest": outcome.digest,
    }
    if slo is not None:
        met = outcome.met(slo.ttft_s, slo.tpot_s)
        found["slo"] = {
            "ttft_s": slo.ttft_s,
            "tpot_s": slo.tpot_s,
            "attainment": float(met.mean()) if len(met) else None,
            "wanted": slo.attainment,
            "goodput_per_s": _each_second(float(met.sum()), outcome),
        }
    return found


def _each_second(amount: float, outcome: Outcome) -> float:
    return amount / outcome.lasted_s if outcome.lasted_s else 0.0


def percentiles(values: "np.ndarray[Any, Any]") -> Mapping[str, float | None]:
    """Mean, percentiles and the largest."""
    if not len(values):
        return {"mean": None, **{f"p{share * 100:g}": None for share in SHARES}, "max": None}
    return {
        "mean": float(values.mean()),
        **{f"p{share * 100:g}": percentile(values, share) for share in SHARES},
        "max": float(values.max()),
    }


def replica(one: Any, lasted_s: float) -> Mapping[str, Any]:
    """One replica's time."""
    return {
        "name": one.name,
        "model": one.model,
        "there_s": one.there_s,
        "starting_s": one.starting_s,
        "busy": one.busy_s / one.there_s if one.there_s else 0.0,
        "there": one.there_s / lasted_s if lasted_s else 0.0,
        "steps": one.steps,
        "preemptions": one.preemptions,
        "usd": float(one.usd),
    }


def by(outcome: Outcome, part: str, slo: Slo | None) -> dict[str, Any]:
    """The same for each tenant or model; replicas and bills are of all."""
    column = outcome.columns[part]
    names: Sequence[str] = outcome.names
    keep = ("requests", "ends", "requests_per_s", "ttft_s", "tpot_s", "e2e_s", "slo")
    told = {}
    for number in np.unique(column):
        some = report(outcome.of(**{part: names[int(number)]}), slo)
        told[names[int(number)]] = {key: some[key] for key in keep if key in some}
    return told
