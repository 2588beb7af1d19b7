"""Which version of a model a request gets, while there are two. Pure.

Each caller has a place between 0 and 1, by a hash of its name and the split's; the new version has
those below its weight. So a caller stays where it is, and a growing weight only ever moves callers
from the old version to the new one. A split is replaced as a whole: that is one change of route.
"""

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Split:
    """`weight` (0 to 1) of the callers get `new`, the others `old`; `name` is the rollout's."""

    name: str
    old: str
    new: str
    weight: float

    def __post_init__(self) -> None:
        if not 0.0 <= self.weight <= 1.0:
            raise ValueError(f"a weight is between 0 and 1, and not {self.weight}")


def version_for(split: Split, caller: str) -> str:
    """The version that a caller gets. `caller` is what stays the same: a session, a user, a key."""
    digest = hashlib.blake2b(f"{split.name}/{caller}".encode(), digest_size=8).digest()
    place = int.from_bytes(digest) / 2**64
    return split.new if place < split.weight else split.old
