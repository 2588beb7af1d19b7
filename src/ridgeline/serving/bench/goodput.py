"""Goodput: how many requests were served as well as promised.

Objectives are written `ttft=500ms,tpot=50ms`. Time to first token and end-to-end time count
from the moment a request was scheduled, since that is when its user began to wait; a request
that failed has missed its objectives.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ridgeline.errors import SpecError
from ridgeline.serving.bench.sample import Sample
from ridgeline.units import parse_seconds

MEASURES = ("ttft", "tpot", "e2e")
REMEDY = "ttft=500ms,tpot=50ms (any of ttft, tpot, e2e)"


@dataclass(frozen=True, slots=True)
class Slo:
    """Upper bounds on a request's latencies, in seconds; infinite where nothing is promised."""

    ttft_s: float = math.inf
    tpot_s: float = math.inf
    e2e_s: float = math.inf

    def __str__(self) -> str:
        named = (("ttft", self.ttft_s), ("tpot", self.tpot_s), ("e2e", self.e2e_s))
        return ", ".join(f"{name} {1e3 * bound:g} ms" for name, bound in named if bound < math.inf)

    def option(self) -> str:
        """The same as one writes it after --slo."""
        return str(self).replace(" ms", "ms").replace(", ", ",").replace(" ", "=")

    def met_by(self, sample: Sample) -> bool:
        """True where the request was answered whole and within every bound.

        A pace that does not exist (an answer of one token) cannot be missed.
        """
        ttft_s = sample.scheduled_ttft_s
        if not sample.ok or ttft_s is None:
            return False
        tpot_s = sample.tpot_s or 0.0
        within = ttft_s <= self.ttft_s and tpot_s <= self.tpot_s
        return within and sample.scheduled_e2e_s <= self.e2e_s


@dataclass(frozen=True, slots=True)
class Goodput:
    """Of `total` requests, `good` met all objectives: as a share 0..1 and as a rate."""

    good: int
    total: int
    per_s: float

    @property
    def share(self) -> float:
        """The share of requests that met their objectives, 0..1."""
        return self.good / self.total if self.total else 0.0


def goodput(samples: Sequence[Sample], slo: Slo, duration_s: float) -> Goodput:
    """Goodput of a run that lasted `duration_s`; failed requests count as missed."""
    good = sum(slo.met_by(sample) for sample in samples)
    return Goodput(good, len(samples), good / duration_s if duration_s > 0 else 0.0)


def parse_slo(text: str, *, where: str = "--slo") -> Slo:
    """Read `ttft=500ms,tpot=50ms`; raises SpecError that names the part at fault."""
    bounds: dict[str, float] = {}
    for part in text.split(","):
        name, _, bound = (word.strip() for word in part.partition("="))
        if name not in MEASURES:
            raise SpecError(f'nothing called "{name}" is measured', where=where, remedy=REMEDY)
        if f"{name}_s" in bounds:
            raise SpecError(f"{name} is given twice", where=where, remedy=REMEDY)
        try:
            bounds[f"{name}_s"] = parse_seconds(bound)
        except ValueError as error:
            raise SpecError(f"{name}: {error}", where=where, remedy=REMEDY) from error
    return Slo(**bounds)
