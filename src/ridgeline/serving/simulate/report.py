"""What a run says, as plain values: for JSON, for a table, for comparing.

Percentiles are nearest rank. Goodput counts requests that were answered within the SLO, of all that
were asked; who was refused or left did not get it. Of a run that was not in balance there are no
percentiles: those that it had are under `times_of_this_run`, and say how long it was.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ridgeline.serving.simulate.asked import End
from ridgeline.serving.simulate.outcome import Outcome, ReplicaTime, percentile
from ridgeline.serving.simulate.setup import Serving
from ridgeline.serving.simulate.shares import together, what_bound
from ridgeline.serving.simulate.stability import Balance, balance_of

SHARES = (0.5, 0.9, 0.99)
_TIMES = ("ttft_s", "tpot_s", "e2e_s")
_OF_PARTS = (
    "requests", "ends", "requests_per_s", "output_tokens_per_s", *_TIMES, "prefix_hit_rate", "slo",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Slo:
    """What is promised."""

    ttft_s: float
    tpot_s: float
    attainment: float = 0.95


#: The promise to whoever asks a model; None where there is none.
Promised = Callable[[str], Slo | None]


def report(outcome: Outcome, slo: Slo | None = None, *, is_loop: bool = False) -> dict[str, Any]:
    """One run; numbers that there are none of are None. `is_loop`: its clients wait for answers."""
    steady = balance_of(outcome, is_loop=is_loop)
    found: dict[str, Any] = {
        "requests": outcome.requests,
        "ends": {end.name.lower(): count for end in End if (count := outcome.count(end))},
        "lasted_s": outcome.lasted_s,
        "stable": steady.is_stable,
        "verdict": str(steady.verdict),
        "in_flight": {"third_quarter": steady.flying[0], "last_quarter": steady.flying[1]},
        "wait_s": {"third_quarter": steady.wait_s[0], "last_quarter": steady.wait_s[1]},
        "growth_per_s": asdict(steady.growth_per_s),
        "queue_stands": steady.queued,
        **_speeds(outcome),
        **_times(outcome, steady),
        "prefix_hit_rate": outcome.hit_rate,
        "replica_hours": outcome.replica_hours,
        "usd": float(outcome.usd),
        **_unit_costs(outcome),
        "charged_usd": {name: float(usd) for name, usd in sorted(outcome.spent_usd.items())},
        "replicas": [replica(one, outcome.lasted_s) for one in outcome.replicas],
        "scaled": [
            {"at_s": at_s, "model": model, "replicas": count, "reason": reason}
            for at_s, model, count, reason in outcome.scaled
        ],
        "changed": [
            {"at_s": at_s, "kind": kind, "said": said} for at_s, kind, said in outcome.changed
        ],
        "events": outcome.events,
        "digest": outcome.digest,
    }
    if slo is not None:
        found["slo"] = _kept(outcome, slo)
    if outcome.series is not None:
        found |= over_time(outcome)
    return found


def _speeds(outcome: Outcome) -> dict[str, float]:
    said = int(outcome.columns["said_tokens"][outcome.answered].sum())
    return {
        "requests_per_s": _each_second(outcome.requests, outcome),
        "output_tokens_per_s": _each_second(said, outcome),
    }


def _times(outcome: Outcome, steady: Balance) -> dict[str, Any]:
    values = (outcome.ttft_s(), outcome.tpot_s(), outcome.e2e_s())
    told = {name: percentiles(some) for name, some in zip(_TIMES, values, strict=True)}
    if steady.is_stable:
        return told
    none = {name: dict.fromkeys(percentiles(np.array([]))) for name in _TIMES}
    return {**none, "times_of_this_run": told}


def _unit_costs(outcome: Outcome) -> dict[str, float | None]:
    """What a thousand answers cost, and a million tokens of them."""
    answers = outcome.count(End.ANSWERED)
    said = int(outcome.columns["said_tokens"][outcome.answered].sum())
    usd = float(outcome.usd)
    return {
        "usd_per_1k_answers": 1e3 * usd / answers if answers else None,
        "usd_per_1m_output_tokens": 1e6 * usd / said if said else None,
    }


def _kept(outcome: Outcome, slo: Slo) -> dict[str, float | None]:
    met = outcome.met(slo.ttft_s, slo.tpot_s)
    return {
        "ttft_s": slo.ttft_s,
        "tpot_s": slo.tpot_s,
        "attainment": float(met.mean()) if len(met) else None,
        "wanted": slo.attainment,
        "goodput_per_s": _each_second(float(met.sum()), outcome),
    }


def _each_second(amount: float, outcome: Outcome) -> float:
    return amount / outcome.lasted_s if outcome.lasted_s else 0.0


def percentiles(values: NDArray[Any]) -> Mapping[str, float | None]:
    """Mean, percentiles and the largest."""
    if not len(values):
        return {"mean": None, **{f"p{share * 100:g}": None for share in SHARES}, "max": None}
    return {
        "mean": float(values.mean()),
        **{f"p{share * 100:g}": percentile(values, share) for share in SHARES},
        "max": float(values.max()),
    }


def replica(one: ReplicaTime, lasted_s: float) -> Mapping[str, Any]:
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


def over_time(outcome: Outcome) -> dict[str, Any]:
    """What bound, in all and when, and what was there at each instant, by kind of replicas."""
    series = outcome.series
    assert series is not None, "a run that was looked at"
    parts = {kind: what_bound(outcome, kind) for kind in series.kinds}
    told = {}
    for kind, bound in parts.items():
        looks = series.looks(kind)
        told[kind] = {
            **{name: values.tolist() for name, values in looks.seen.items()},
            "bound_s": {cause: values.tolist() for cause, values in bound.by_s.items()},
        }
    every = together(list(parts.values()))
    return {
        "bound": {"all": every.shares, **{kind: one.shares for kind, one in parts.items()}},
        "series": {"at_s": every.at_s.tolist(), "kinds": told},
    }


def by(outcome: Outcome, part: str, promised: Promised) -> dict[str, Any]:
    """The same for each "tenant" or "model"; replicas and bills are of all.

    Who asked several models under different promises is told against each of them.
    """
    names: Sequence[str] = outcome.names
    found = {}
    for number in np.unique(outcome.columns[part]):
        name = names[int(number)]
        some = outcome.of(**{part: name})
        found[name] = _part(some, promised)
    return found


def by_model(outcome: Outcome, serving: Serving, promised: Promised) -> dict[str, Any]:
    """The same for each model that clients call, with what its own replicas cost."""
    found = by(outcome, "model", promised)
    served = {one.name: one.served for one in serving.models}
    for name, told in found.items():
        own = [one for one in outcome.replicas if served[one.model] == name]
        told["replica_hours"] = sum(one.there_s for one in own) / 3600
        told["usd"] = float(sum(one.usd for one in own))
    return found


def by_class(outcome: Outcome, serving: Serving, promised: Promised) -> dict[str, Any]:
    """The same for each priority class of tenants."""
    classes = {one.name: one.priority_class for one in serving.tenants}
    of_name = [classes.get(name, "default") for name in outcome.names]
    own = np.array([of_name[number] for number in outcome.columns["tenant"].tolist()])
    return {name: _part(outcome.where(own == name), promised) for name in np.unique(own).tolist()}


def _part(some: Outcome, promised: Promised) -> dict[str, Any]:
    parts = report(replace(some, series=None))
    told = {key: parts.get(key) for key in _OF_PARTS if key in parts}
    if "times_of_this_run" in parts:
        told["times_of_this_run"] = parts["times_of_this_run"]
    if (slo := kept(some, promised)) is not None:
        told["slo"] = slo
    return told


def kept(outcome: Outcome, promised: Promised) -> dict[str, float | None] | None:
    """Of all who were promised something, who got it; None where nobody was."""
    asked = met = 0
    for slo, some in _promises(outcome, promised):
        asked += some.requests
        met += int(some.met(slo.ttft_s, slo.tpot_s).sum())
    if not asked:
        return None
    return {"attainment": met / asked, "goodput_per_s": _each_second(met, outcome)}


def _promises(outcome: Outcome, promised: Promised) -> Iterator[tuple[Slo, Outcome]]:
    for number in np.unique(outcome.columns["model"]):
        model = outcome.names[int(number)]
        if (slo := promised(model)) is not None:
            yield slo, outcome.of(model=model)
