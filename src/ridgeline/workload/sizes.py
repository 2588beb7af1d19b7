"""Distributions of token counts, from a seed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ridgeline.errors import SpecError
from ridgeline.workload.numbers import number

DRAWN_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Sizes:
    """A distribution of token counts, at least 1: `kind` and its two parameters."""

    kind: str
    first: float
    second: float = 0.0

    def __str__(self) -> str:
        if self.kind == "fixed":
            return f"{self.first:g}"
        return f"{self.kind}:{self.first:g}:{self.second:g}"

    @property
    def mean(self) -> float:
        """Of what is drawn, before it is rounded and kept from being below 1."""
        return (self.first + self.second) / 2 if self.kind == "uniform" else self.first

    def draw(self, rng: np.random.Generator) -> Iterator[int]:
        """Endless sizes in tokens, rounded to whole numbers and never below 1."""
        while True:
            for size in np.rint(self._values(rng)).tolist():
                yield max(1, int(size))

    def _values(self, rng: np.random.Generator) -> Any:
        if self.kind == "uniform":
            return rng.integers(int(self.first), int(self.second) + 1, DRAWN_AT_ONCE)
        if self.kind == "normal":
            return rng.normal(self.first, self.second, DRAWN_AT_ONCE)
        if self.kind == "lognormal":
            variance = np.log1p(self.second**2)  # of the logarithm; `second` is the CV
            mean = np.log(self.first) - variance / 2
            return rng.lognormal(mean, np.sqrt(variance), DRAWN_AT_ONCE)
        return np.full(DRAWN_AT_ONCE, self.first)


def parse_sizes(text: str, *, where: str) -> Sizes:
    """Read "128", "uniform:LOW:HIGH", "normal:MEAN:SD" or "lognormal:MEAN:CV"; raises SpecError."""
    kind, *rest = text.split(":")
    fixed = number(kind)
    if fixed is not None and not rest and fixed >= 1 and fixed == int(fixed):
        return Sizes("fixed", fixed)
    numbers = [number(part) for part in rest]
    if len(numbers) == 2 and numbers[0] is not None and numbers[1] is not None:
        low, high = numbers[0], numbers[1]
        if (kind == "uniform" and 1 <= low <= high) or (
            kind in ("normal", "lognormal") and low >= 1 and high >= 0
        ):
            return Sizes(kind, low, high)
    raise SpecError(
        f'"{text}" is not a number of tokens or a distribution',
        where=where,
        remedy='"128", "uniform:64:256", "normal:128:32" (mean, SD) or "lognormal:512:1.5" '
        "(mean, CV)",
    )
