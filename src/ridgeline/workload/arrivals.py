"""How requests are spread in time: the gaps between arrivals, from a seed."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ridgeline.errors import SpecError
from ridgeline.workload.numbers import number

DRAWN_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Arrivals:
    """How requests are spread in time: the law of the gaps between them.

    `cv` is the coefficient of variation of the gaps (standard deviation over mean): 0 is evenly
    spaced, 1 is Poisson, more is burstier. Gaps are gamma distributed in between.
    """

    name: str
    cv: float

    def times_s(self, rate_per_s: float, seed: int) -> Iterator[float]:
        """Endless arrival times; the first comes after one gap. The mean gap is 1 / rate."""
        rng = np.random.default_rng([seed, 0])
        now_s = 0.0
        while True:
            for gap in self._gaps(rng):
                now_s += gap / rate_per_s
                yield now_s

    def _gaps(self, rng: np.random.Generator) -> list[float]:
        if self.cv == 0:
            return [1.0] * DRAWN_AT_ONCE
        shape = 1 / self.cv**2
        gaps: list[float] = rng.gamma(shape, 1 / shape, DRAWN_AT_ONCE).tolist()
        return gaps


def parse_arrivals(text: str, *, where: str = "--arrivals") -> Arrivals:
    """Read "poisson", "uniform" or "gamma:CV"; raises SpecError."""
    kind, _, rest = text.partition(":")
    if kind == "poisson" and not rest:
        return Arrivals("Poisson", 1.0)
    if kind == "uniform" and not rest:
        return Arrivals("evenly spaced", 0.0)
    cv = number(rest)
    if kind == "gamma" and cv is not None and 0 < cv <= 100:
        return Arrivals(f"gamma (CV {cv:g})", cv)
    raise SpecError(
        f'"{text}" is not a way to arrive',
        where=where,
        remedy='"poisson", "uniform", or "gamma:2" (the number is the CV of the gaps, over 0)',
    )
