"""What goes first at one instant of a simulation: the world changes, is looked at, is decided.

Whoever decides has seen all that happened.

    step ends  <  faults  <  stages of starts  <  reports  <  looks  <  arrivals  <  steps begin

Of one kind the entity with the lower number goes first, so that no order depends on how an event
came about: a simulator that jumps over steps has the same order as one that does not.
"""

from enum import IntEnum

_MOST = 1 << 32  # entities of one kind


class Kind(IntEnum):
    """A kind of event; the lower goes first."""

    STEP_ENDS = 0
    FAULT = 1
    STAGE = 2
    REPORT = 3
    LOOK = 4
    ARRIVAL = 5
    EXPIRY = 6
    STEP_BEGINS = 7


def rank(kind: Kind, number: int = 0) -> int:
    """The rank of an event of this kind at the entity with this number."""
    return kind * _MOST + number
