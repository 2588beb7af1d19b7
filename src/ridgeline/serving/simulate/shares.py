"""What bound when: each stretch of time, and all of it, divided by what held the engines up.

The time that replicas are ready is what is divided: a share each to the queue (requests wait for a
slot or a seat), the cache (they wait for blocks, or lost them), arithmetic, bandwidth, what an
engine adds to its steps, steps whose parts are not known, and idling. A step's own terms count
where nobody waits behind it: while requests wait at the gateway all slots are taken, and all the
time of busy engines is the queue's.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ridgeline.serving.simulate.outcome import Outcome
from ridgeline.serving.simulate.series import Looks
from ridgeline.timeline import NS

#: What can bind, in the order in which it is told.
CAUSES = ("queue", "kv", "compute", "bandwidth", "fixed", "untold", "idle")
_TERMS = ("compute", "bandwidth", "fixed", "untold")
Vector = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bound:
    """Seconds of engines by cause, for each stretch between two of `at_s`."""

    at_s: Vector
    by_s: dict[str, Vector]

    @property
    def shares(self) -> dict[str, float]:
        """Of all the time, by cause; 0 where no engine was ever ready."""
        totals = {cause: float(values.sum()) for cause, values in self.by_s.items()}
        whole = sum(totals.values())
        return {cause: total / whole if whole else 0.0 for cause, total in totals.items()}


def what_bound(outcome: Outcome, kind: str) -> Bound:
    """Of the replicas of one kind, in a run with a series."""
    series = outcome.series
    assert series is not None, "a run that was looked at"
    looks = series.looks(kind)
    there_s = np.diff(looks.there_s)
    counts = {name: np.diff(sums) for name, sums in looks.counts_s.items()}
    busy_s = np.sum([counts[one] for one in _TERMS], axis=0)
    queue_s = np.minimum(busy_s, there_s * _queued(outcome, series.served(kind), looks))
    rest = 1 - queue_s / np.where(busy_s > 0, busy_s, 1.0)
    by_s = {
        "queue": counts["seats"] + queue_s,
        "kv": counts["kv"],
        **{one: counts[one] * rest for one in _TERMS},
    }
    by_s["idle"] = np.maximum(there_s - sum(by_s.values()), 0.0)
    return Bound(looks.at_s, by_s)


def together(parts: list[Bound]) -> Bound:
    """Of several kinds of one run."""
    by_s = {cause: np.sum([one.by_s[cause] for one in parts], axis=0) for cause in CAUSES}
    return Bound(parts[0].at_s, by_s)


def _queued(outcome: Outcome, model: str, looks: Looks) -> Vector:
    """The share of each stretch in which a request for the model waited in line.

    Of one that was sent twice it is not known how long.
    """
    waits = outcome.of(model=model).columns
    known = (waits["entered_ns"] >= 0) & (waits["tries"] <= 1)
    sent, begins = waits["sent_ns"][known], waits["entered_ns"][known]
    ends = np.where(sent >= 0, sent, waits["done_ns"][known])
    order = np.argsort(begins, kind="stable")
    begins, ends = begins[order], np.maximum.accumulate(ends[order])
    if not len(begins):
        return np.zeros(len(looks.at_s) - 1)
    starts = np.concatenate(([begins[0]], np.maximum(begins[1:], ends[:-1])))
    lasted = np.cumsum(np.maximum(ends - starts, 0))
    corners = np.column_stack((starts, np.maximum(ends, starts))).ravel()
    sums = np.column_stack((np.concatenate(([0], lasted[:-1])), lasted)).ravel()
    waited = np.interp(looks.at_s * NS, corners, sums)
    return np.asarray(np.diff(waited) / np.maximum(np.diff(looks.at_s) * NS, 1.0))
