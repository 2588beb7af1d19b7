"""Priority classes: who goes first, and what keeps them from starving each other. Pure.

A higher class goes first, with two exceptions. A class with work gets its floor, a share of the
slots, whatever comes from above. And where a share of the slots is less than one, a class of
which nothing was served for `promotion_s` has its next entry served as one class higher, and so
on up to the top, where the one that waited longest goes before everybody (decisions/0019).
"""

from dataclasses import dataclass

NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """One class. `patience_s` is how long one of its entries may queue."""

    name: str
    floor: float
    patience_s: float
    promotion_s: float


@dataclass(frozen=True, slots=True)
class Classes:
    """All classes, the highest first. Raises ValueError where they cannot be kept."""

    order: tuple[PriorityClass, ...]

    def __post_init__(self) -> None:
        names = [each.name for each in self.order]
        if not names or len(set(names)) < len(names):
            raise ValueError(f"classes {names}: one at least, each with a name of its own")
        if min(each.floor for each in self.order) < 0 or sum(each.floor for each in self.order) > 1:
            raise ValueError("floors are shares of the slots: 0 or more each, 1 at most together")
        if min(min(each.patience_s, each.promotion_s) for each in self.order) <= 0:
            raise ValueError("patience_s and promotion_s must be more than 0")

    def rank(self, name: str) -> int:
        """The place of a class, 0 for the highest; KeyError where there is none of that name."""
        for rank, each in enumerate(self.order):
            if each.name == name:
                return rank
        raise KeyError(name)

    def risen(self, rank: int, waited_ns: int) -> int:
        """As which class one is served that waited so long; -1: before everybody."""
        while rank >= 0 and waited_ns >= (step_ns := int(self.order[rank].promotion_s * NS)):
            waited_ns -= step_ns
            rank -= 1
        return rank

    def top_ns(self, rank: int) -> int:
        """After so long without service a class goes before everybody."""
        return sum(int(each.promotion_s * NS) for each in self.order[: rank + 1])


CLASSES = Classes(
    (
        PriorityClass("system", 0.05, 30.0, 5.0),
        PriorityClass("interactive", 0.20, 30.0, 5.0),
        PriorityClass("default", 0.10, 60.0, 30.0),
        PriorityClass("bulk", 0.05, 300.0, 120.0),
    )
)
