"""When a replica is taken out of service, and when it comes back. Pure; the gateway calls it.

    STARTING ──ready──▶ READY ──says it is not, or too many strikes──▶ DOWN ──ready──▶ READY
        any ──drain──▶ DRAINING (final: whoever drains a replica removes it)

A busy replica answers late; a dead one refuses. So a probe without an answer is one strike, a
refused connection is three, and any answer to a real request wipes them all out: a replica that
still generates is alive, however late its health page. An error answer to a client's request is
no sign at all: the client may be at fault.
"""

from dataclasses import dataclass
from enum import Enum, auto

from ridgeline.serving.policy.route import State

OUT_AT = 6  # strikes: two refused connections in a row, or six probes without an answer


class Sign(Enum):
    """What the gateway has seen of a replica."""

    READY = auto()  # a probe was answered: it takes requests
    NOT_READY = auto()  # a probe was answered: it does not
    SILENT = auto()  # a probe had no answer in time
    REFUSED = auto()  # no connection could be had, or it broke before any answer
    ANSWERED = auto()  # a request was answered, with whatever status
    DRAIN = auto()  # somebody wants it to end


@dataclass(frozen=True, slots=True)
class Health:
    """A replica's state with the strikes against it, and why it is so."""

    state: State = State.STARTING
    strikes: int = 0
    reason: str = "not ready yet"


def judge(health: Health, sign: Sign) -> Health:
    """The health after one more sign."""
    if health.state is State.DRAINING:
        return health
    match sign:
        case Sign.DRAIN:
            return Health(State.DRAINING, 0, "draining was asked for")
        case Sign.READY:
            return Health(State.READY, 0, "answers its probe")
        case Sign.ANSWERED:
            return Health(health.state, 0, health.reason)
        case Sign.NOT_READY:
            return Health(_out(health.state), 0, "says that it is not ready")
        case Sign.REFUSED:
            return _struck(health, 3, "refuses connections")
        case Sign.SILENT:
            return _struck(health, 1, "does not answer its probes")


def _struck(health: Health, by: int, reason: str) -> Health:
    strikes = min(health.strikes + by, OUT_AT)
    if strikes < OUT_AT:
        return Health(health.state, strikes, health.reason)
    return Health(_out(health.state), strikes, reason)


def _out(state: State) -> State:
    return State.STARTING if state is State.STARTING else State.DOWN
