"""How a workload's rate changes with time: a day, a step, bursts.

Its mean stays what was asked for, but for a step, whose rate is what was asked for until then.

A profile warps time: the same unit process runs faster where the rate is higher. So two profiles,
or two rates, under one seed have their chances in common.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, cycle, repeat
from math import exp, inf, pi, sin
from statistics import fmean

from ridgeline.errors import SpecError

DAY_S = 86_400.0
_PARTS = 96  # quarters of an hour
_MOST_PEAK = 20.0


@dataclass(frozen=True, slots=True)
class Profile:
    """Pieces in order: how long each lasts (s), and its rate beside the workload's.

    The last piece lasts for ever, or all of them come again where it `repeats`.
    """

    name: str
    pieces: tuple[tuple[float, float], ...]
    repeats: bool = True

    def warped(self, times_s: Iterable[float]) -> Iterator[float]:
        """Arrival times of a steady process, ascending, as this profile has them."""
        ever = repeat((inf, self.pieces[-1][1]))
        pieces = cycle(self.pieces) if self.repeats else chain(self.pieces[:-1], ever)
        began_s, done_s = 0.0, 0.0  # of the piece, and of the steady process at its beginning
        lasts_s, rate = next(pieces)
        for at_s in times_s:
            while at_s >= done_s + lasts_s * rate:
                began_s, done_s = began_s + lasts_s, done_s + lasts_s * rate
                lasts_s, rate = next(pieces)
            yield began_s + (at_s - done_s) / rate


def parse_profile(text: str, *, where: str = "--profile") -> Profile:
    """Read "diurnal:PEAK", "step:AT_S:TIMES" or "onoff:ON_S:OFF_S"; raises SpecError."""
    kind, *parts = text.split(":")
    try:
        numbers = [float(part) for part in parts]
    except ValueError:
        numbers = []
    match kind, numbers:
        case "diurnal", [peak] if 1 <= peak <= _MOST_PEAK:
            return _diurnal(peak)
        case "step", [at_s, times] if 0 < at_s < inf and 0 < times < inf:
            pieces = ((at_s, 1.0), (inf, times))
            return Profile(f"{times:g} times from {at_s:g} s on", pieces, repeats=False)
        case "onoff", [on_s, off_s] if 0 < on_s < inf and 0 <= off_s < inf:
            pieces = ((on_s, (on_s + off_s) / on_s), (off_s, 0.0))
            return Profile(f"{on_s:g} s on, {off_s:g} s off", pieces)
    raise SpecError(
        f"{text!r} is no profile",
        where=where,
        remedy="diurnal:2.66 (peak over mean of a day, up to 20), step:300:3 (from 300 s on three "
        "times the rate), or onoff:30:90 (bursts of 30 s, 90 s of nothing)",
    )


def _diurnal(peak: float) -> Profile:
    """A day from midnight, lowest at 3 and highest at 15 hours: exp(k sin), its mean 1."""
    low, high = 0.0, 64.0
    for _ in range(60):
        middle = (low + high) / 2
        if max(_day(middle)) < peak:
            low = middle
        else:
            high = middle
    pieces = tuple((DAY_S / _PARTS, rate) for rate in _day(low))
    return Profile(f"a day, its peak {peak:g} times the mean", pieces)


def _day(steepness: float) -> list[float]:
    angles = (2 * pi * (part + 0.5) / _PARTS - 3 * pi / 4 for part in range(_PARTS))
    rates = [exp(steepness * (sin(angle) - 1)) for angle in angles]
    mean = fmean(rates)
    return [rate / mean for rate in rates]
