"""A recorded workload, and what is done to any recording before it is used."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from ridgeline.workload.request import Request

#: A clock whose steps are this long hides when requests came.
COARSE_CLOCK_S = 0.5
#: Of the places within a step of such a clock: a file always gives the same requests.
_SPREAD_SEED = 3

Draw = Callable[[int], tuple[Request, ...]]


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded workload. `timed` is False where the file holds lengths and no arrivals.

    `block_tokens` is the size of the prompt blocks that `Request.blocks` names, 0 without them.
    `notes` says what was done to the rows, in words for the report. `format` is whose layout it is.
    Where a file holds distributions and no requests, `draw` draws them for a seed.
    """

    name: str
    requests: tuple[Request, ...]
    block_tokens: int
    timed: bool
    notes: tuple[str, ...] = ()
    format: str = ""
    draw: Draw | None = field(default=None, repr=False, compare=False)

    def drawn(self, seed: int) -> tuple[Request, ...]:
        """Its requests for a run of this seed: the same for every seed, if they were recorded."""
        return self.requests if self.draw is None else self.draw(seed)

    @property
    def rate_per_s(self) -> float:
        """Requests a second on average; 0 without times."""
        lasts_s = self.requests[-1].at_s
        return len(self.requests) / lasts_s if lasts_s else 0.0

    @property
    def models(self) -> tuple[str, ...]:
        """The models that its requests name, in order of their first."""
        return tuple(dict.fromkeys(one.model for one in self.requests if one.model))


def in_order(requests: Sequence[Request]) -> list[Request]:
    """By time; what came at one instant stays as it was."""
    return sorted(requests, key=_at_s)


def is_in_order(requests: Sequence[Request]) -> bool:
    """Whether no request comes before the one before it."""
    return all(a.at_s <= b.at_s for a, b in pairwise(requests))


def spread_ticks(requests: list[Request]) -> list[Request]:
    """Spread requests of one instant over the clock's step, where that step is coarse.

    A burst that never was would inflate every latency. Where they came within the step is drawn
    evenly, which is where the arrivals of a Poisson process are once one knows how many there were.
    """
    instants = sorted({one.at_s for one in requests})
    step_s = min((b - a for a, b in pairwise(instants)), default=0.0)
    if step_s < COARSE_CLOCK_S or len(instants) == len(requests):
        return requests
    rng = np.random.default_rng(_SPREAD_SEED)
    sharing: dict[float, list[Request]] = {}
    for one in requests:
        sharing.setdefault(one.at_s, []).append(one)
    return [
        replace(one, at_s=at_s + step_s * place)
        for at_s, group in sharing.items()
        for place, one in zip(np.sort(rng.random(len(group))).tolist(), group, strict=True)
    ]


def from_zero(requests: Sequence[Request], speed: float) -> tuple[Request, ...]:
    """The first at 0 s, and so many times as fast."""
    first_s = requests[0].at_s
    if first_s == 0 and speed == 1:
        return tuple(requests)
    return tuple(replace(one, at_s=(one.at_s - first_s) / speed) for one in requests)


def _at_s(request: Request) -> float:
    return request.at_s
