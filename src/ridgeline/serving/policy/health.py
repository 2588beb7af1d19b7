"""When a replica is taken out of service, and when it comes back. Pure; the gateway calls it.

A replica is ready once it gave a real token (`FIRST_TOKEN`): health pages have said 200 before
any model could answer. It goes out when it says so itself, or after too many strikes. A busy
replica answers late, a dead one refuses: so a probe without an answer is one strike, a refused
connection three, and a real answer wipes all of these out. Answers with an error of the replica's
own (5xx) are counted apart, for the health page of such a replica is often fine: only a good answer
wipes them out. An error that the client caused is no sign at all, and neither is "too busy".

What was taken out comes back as it came first: by a real token. So every return is a trial.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto

from ridgeline.serving.policy.states import State

OUT_AT = 6  # strikes: two refused connections in a row, or six probes without an answer
FAILED_AT = 5  # answers in a row that were the replica's own failures

_LEAVING = (State.DRAINING, State.EMPTY, State.STOPPED)


class Sign(Enum):
    """What the gateway has seen of a replica."""

    FIRST_TOKEN = auto()  # it was asked for a token, and gave one
    READY = auto()  # a probe was answered: it takes requests
    NOT_READY = auto()  # a probe was answered: it does not
    SILENT = auto()  # a probe had no answer in time
    REFUSED = auto()  # no connection could be had, or it broke before any answer
    ANSWERED = auto()  # a request was answered, and not with a failure
    FAILED = auto()  # a request was answered with a 5xx, or its answer broke off
    DRAIN = auto()  # somebody wants it to end
    EMPTIED = auto()  # it drains, and nothing runs there any more
    STOP = auto()  # it is gone


@dataclass(frozen=True, slots=True)
class Health:
    """A replica's state with what counts against it, and why it is so."""

    state: State = State.STARTING
    strikes: int = 0
    failures: int = 0
    reason: str = "nothing answers yet"


def judge(health: Health, sign: Sign) -> Health:
    """The health after one more sign."""
    if sign is Sign.STOP:
        return Health(State.STOPPED, reason="it was stopped")
    if health.state in _LEAVING:
        return _leaving(health, sign)
    match sign:
        case Sign.DRAIN:
            return Health(State.DRAINING, reason="draining was asked for")
        case Sign.FIRST_TOKEN:
            return Health(State.READY, reason="gave a token")
        case Sign.READY:
            return _answers(health)
        case Sign.NOT_READY:
            return Health(_out(health.state), reason="says that it is not ready")
        case Sign.ANSWERED:
            return replace(health, strikes=0, failures=0)
        case Sign.FAILED:
            return _failed(health)
        case Sign.REFUSED:
            return _struck(health, 3, "refuses connections")
        case Sign.SILENT:
            return _struck(health, 1, "does not answer its probes")
        case Sign.EMPTIED:
            return health  # nothing runs there, as so often


def _leaving(health: Health, sign: Sign) -> Health:
    if health.state is State.DRAINING and sign is Sign.EMPTIED:
        return Health(State.EMPTY, reason="nothing runs there any more")
    return health


def _answers(health: Health) -> Health:
    """Its health page is good: enough to stay, too little to begin."""
    if health.state is State.READY:
        return replace(health, strikes=0)
    return replace(health, state=_out(health.state), strikes=0, reason="has given no token yet")


def _failed(health: Health) -> Health:
    failures = min(health.failures + 1, FAILED_AT)
    if health.state is not State.READY or failures < FAILED_AT:
        return replace(health, failures=failures)
    return Health(State.DOWN, failures=failures, reason=f"failed {failures} requests in a row")


def _struck(health: Health, by: int, reason: str) -> Health:
    strikes = min(health.strikes + by, OUT_AT)
    if strikes < OUT_AT or health.state not in (State.READY, State.LOADING):
        return replace(health, strikes=strikes)
    state = State.DOWN if health.state is State.READY else State.STARTING
    return Health(state, strikes, reason=reason)


def _out(state: State) -> State:
    """Something answers, but it may not get requests."""
    return State.DOWN if state in (State.READY, State.DOWN) else State.LOADING
