"""What an answer of a replica says about the replica, and whether another may be asked. Pure.

The client's mistakes are nobody's failure: one client with a wrong model name must not take a
replica out of service. A replica that is too busy is healthy. Everything else that is not an
answer is a failure. Another replica is asked only while the client has not got a single byte.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ridgeline.serving.policy.health import Sign


class Outcome(StrEnum):
    """How an attempt at one replica went."""

    ANSWERED = "answered"  # below 400
    CLIENT = "client"  # the request is at fault: another replica would say the same
    BUSY = "busy"  # back-pressure: 429 or 503
    FAILED = "failed"  # the replica is at fault: 5xx, or the connection broke


#: 4xx that are about this replica's moment, not about the request.
_TIMED_OUT: Final = 408


@dataclass(frozen=True, slots=True)
class Judgement:
    """What to think of the replica, and whether to try another where no byte was passed on."""

    outcome: Outcome
    sign: Sign | None
    may_retry: bool
    reason: str


def of_status(status: int) -> Judgement:
    """The judgement on an answer's status."""
    if status < 400:
        return Judgement(Outcome.ANSWERED, Sign.ANSWERED, False, f"answered {status}")
    if status in (429, 503):
        return Judgement(Outcome.BUSY, None, True, f"too busy: {status}")
    if status >= 500 or status == _TIMED_OUT:
        return Judgement(Outcome.FAILED, Sign.FAILED, True, f"failed: {status}")
    return Judgement(Outcome.CLIENT, None, False, f"the request is at fault: {status}")


def of_broken(*, connected: bool) -> Judgement:
    """The judgement on a connection that could not be had, or broke before any answer."""
    if connected:
        return Judgement(Outcome.FAILED, Sign.REFUSED, True, "closed the connection")
    return Judgement(Outcome.FAILED, Sign.REFUSED, True, "cannot be reached")


@dataclass(frozen=True, slots=True)
class RetryBudget:
    """Retries may add a bounded share to the load, else they make an overload worse.

    Each request earns `share` of a retry, up to `most` saved; a retry costs one.
    """

    saved: float = 64.0
    share: float = 0.2
    most: float = 64.0

    def earn(self) -> "RetryBudget":
        """The budget after one more request."""
        return RetryBudget(min(self.most, self.saved + self.share), self.share, self.most)

    def spend(self) -> "RetryBudget | None":
        """The budget after one retry, or None where there is none left to spend."""
        if self.saved < 1:
            return None
        return RetryBudget(self.saved - 1, self.share, self.most)
