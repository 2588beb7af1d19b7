"""What becomes of a request's reservation once the request has ended. Pure.

The order of the questions is the law: a refusal counts only where it was the whole answer, and an
answer that broke off is never free because a replica refused an attempt before it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from ridgeline.serving.policy.limits import Limits
from ridgeline.serving.policy.price import Price


class Then(Enum):
    """What is done with a reservation."""

    RELEASE = "given back"
    LOOK_UP = "looked up"
    SETTLE = "charged"


@dataclass(frozen=True, slots=True)
class Ended:
    """How far a request came.

    `reached`: some replica may have taken it. `complete`: an answer came to its end, whether its
    client stayed for it or not. `refused`: that answer was a replica's no.
    """

    reached: bool
    complete: bool
    refused: bool


def must_be_read(*, stream: bool, keeps_log: bool, limits: Iterable[Limits], price: Price) -> bool:
    """Whether an answer is read to its end though its client leaves before that.

    Of a whole answer nothing has been seen until all of it is there. Where the replica keeps no
    log either, leaving early would make it free.
    """
    if stream or keeps_log:
        return False
    return price.is_something or any(one.counts_tokens for one in limits)


@dataclass(frozen=True, slots=True)
class Closing:
    """What is done, and why."""

    then: Then
    reason: str


def close(ended: Ended) -> Closing:
    """What to do with the reservation."""
    if not ended.reached:
        return Closing(Then.RELEASE, "no replica took it: nothing is charged")
    if not ended.complete:
        return Closing(Then.LOOK_UP, "its answer broke off: what it used is looked up")
    if ended.refused:
        return Closing(Then.RELEASE, "its replica refused it: nothing is charged")
    return Closing(Then.SETTLE, "its answer came to its end")
