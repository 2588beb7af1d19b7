"""Whether a cached beginning is loaded from where it was put, or computed again. Pure.

Blocks that leave a device's cache go to a tier behind it: host memory, then a disk. A prompt whose
beginning is there has it in parts, one behind the other:

    | on the device |  in host memory  |   on the disk   |  nowhere    |
                     ├── part 1 ──────▶├── part 2 ──────▶ computed anyway

Tiers load at the same time, and what is behind the last part that is loaded is computed after it.
So the first n parts take as long as the slowest of them, and the others are computed again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Rule = Literal["quicker", "load", "recompute"]


@dataclass(frozen=True, slots=True)
class Part:
    """Tokens that one tier holds. `load_s` counts from now, the wait for its link included."""

    tier: str
    tokens: int
    load_s: float
    recompute_s: float


@dataclass(frozen=True, slots=True)
class Fetch:
    """The first so many parts are loaded."""

    parts: int
    reason: str


def fetch(parts: Sequence[Part], rule: Rule = "quicker") -> Fetch:
    """The quickest way to have all parts; "load" and "recompute" are there to be compared with."""
    if rule != "quicker":
        return Fetch(len(parts) if rule == "load" else 0, f"{rule}: as told")
    ways = [_way_s(parts, count) for count in range(len(parts) + 1)]
    best = min(range(len(ways)), key=lambda count: (ways[count], count))
    tokens = sum(part.tokens for part in parts[:best])
    if not best:
        return Fetch(0, f"computing takes {ways[0] * 1e3:.3g} ms, {_tiers(parts)} no less")
    took = f"{tokens} tokens of {_tiers(parts[:best])}"
    return Fetch(best, f"{took}: {ways[best] * 1e3:.3g} ms, and {ways[0] * 1e3:.3g} to compute all")


def _way_s(parts: Sequence[Part], count: int) -> float:
    loaded_s = max((part.load_s for part in parts[:count]), default=0.0)
    return loaded_s + sum(part.recompute_s for part in parts[count:])


def _tiers(parts: Sequence[Part]) -> str:
    return " and ".join(dict.fromkeys(part.tier for part in parts))
