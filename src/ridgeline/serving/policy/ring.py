"""A consistent hash ring: who owns a key, so that owners may come and go and few keys move. Pure.

Each name stands at many points of a circle of 2^64 places; a key belongs to the first point at or
after its own place. `route` keeps sessions with it. Hashes are given as integers, or are
`hash64`, which is the same in every process.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import pairwise
from statistics import fmean, median, pstdev

PLACES = 1 << 64
POINTS = 150  # the fullest owner then has 1.26 times the emptiest's share, of eight (S151)
_A_DIGEST = 8  # points that one digest gives


def hash64(text: str) -> int:
    """The place of a text; unlike `hash` the same in every process."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest())


def places(name: str, points: int = POINTS) -> list[int]:
    """Where a name stands."""
    found: list[int] = []
    for index in range(-(-points // _A_DIGEST)):
        digest = blake2b(f"{name}\0{index}".encode()).digest()
        found += [int.from_bytes(digest[at : at + 8]) for at in range(0, len(digest), 8)]
    return found[:points]


class Ring:
    """The owners of all keys. Building costs a sort of all points, a question a bisection."""

    def __init__(
        self,
        names: Sequence[str],
        points: int = POINTS,
        places: Callable[[str, int], Sequence[int]] = places,
    ) -> None:
        if not names or points < 1:
            raise ValueError(f"a ring of {len(names)} names with {points} points owns nothing")
        stand = sorted((place, name) for name in names for place in places(name, points))
        self._places = [place for place, _ in stand]
        self._names = [name for _, name in stand]
        self._count = len(set(names))

    def owner(self, key: int) -> str:
        """Whose key this is."""
        return self._names[self._at(key)]

    def owners(self, key: int) -> Iterator[str]:
        """The owner, then who would own the key without it, and so on: each name once."""
        seen: set[str] = set()
        at = self._at(key)
        while len(seen) < self._count:
            name = self._names[at]
            if name not in seen:
                seen.add(name)
                yield name
            at = (at + 1) % len(self._names)

    def shares(self) -> dict[str, float]:
        """What share of all keys each name owns; they add up to 1."""
        owned = dict.fromkeys(self._names, 0)
        owned[self._names[0]] += self._places[0] + PLACES - self._places[-1]
        for (before, place), name in zip(pairwise(self._places), self._names[1:], strict=True):
            owned[name] += place - before
        return {name: arcs / PLACES for name, arcs in owned.items()}

    def _at(self, key: int) -> int:
        return bisect_left(self._places, key % PLACES) % len(self._names)


@lru_cache(maxsize=64)
def ring_of(names: tuple[str, ...]) -> Ring:
    """The ring of these names, built once: a fleet changes seldom, and is asked often."""
    return Ring(names)


@dataclass(frozen=True, slots=True)
class RingReport:
    """What many random rings are like.

    `imbalance` is the median of the largest share over the smallest. `moved` is the mean share of
    keys that one more name takes over, `moved_deviation` how much that scatters over rings.
    """

    names: int
    points: int
    rings: int
    imbalance: float
    moved: float
    moved_deviation: float


def report(names: int = 8, points: int = POINTS, rings: int = 200, seed: str = "") -> RingReport:
    """How unequal rings of so many names and points are, and what one more name moves.

    Only the newcomer gains keys, so what moves is what it owns.
    """
    imbalances, moved = [], []
    for index in range(rings):
        known = [f"{seed}/{index}/{number}" for number in range(names)]
        shares = Ring(known, points).shares().values()
        imbalances.append(max(shares) / min(shares))
        newcomer = f"{seed}/{index}/new"
        moved.append(Ring([*known, newcomer], points).shares()[newcomer])
    return RingReport(names, points, rings, median(imbalances), fmean(moved), pstdev(moved))
