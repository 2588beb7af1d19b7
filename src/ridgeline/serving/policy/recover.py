"""What a request used whose gateway died or lost sight of it: from what replicas noted. Pure.

A request can have several attempts, one after another. An attempt that was given up before its
first byte gave nothing to anybody. A stream that was resumed elsewhere goes on where it was: its
later attempt either has what was delivered in its prompt (token ids sent along), or counts it as
its own answer (`resume`). So with P prompt and C answer tokens the rule for both, and for retries:

    input  = P of the first attempt that a log has
    output = P of the last attempt - input + C of the last attempt

    attempt 1   [ prompt P1 | delivered d | lost ]         died
    attempt 2   [ prompt P1   delivered d | C2      ]      P2 - P1 + C2 = d + C2
    or, resumed [ prompt P1 | d + C2                ]      P2 = P1

The last attempt decides, for the others were given up. Where no log has it, what was streamed to
the client counts; where nothing was, nothing is charged.
Called by `gateway.recovery`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum


class Missing(Enum):
    """Why there is no log of an attempt."""

    UNKNOWN = "no replica knows it"
    SILENT = "its replica does not answer"


@dataclass(frozen=True, slots=True)
class Logged:
    """What a replica noted of one attempt."""

    replica: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    finished: bool


@dataclass(frozen=True, slots=True)
class Lost:
    """A request of which only the replicas know the use.

    `attempts` in order; `asked_s` since its end; `reserved_tokens` is its prompt by estimate.
    """

    attempts: Sequence[Logged | Missing]
    streamed_tokens: int
    reserved_tokens: int
    asked_s: float


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait for a replica that is silent or still generates, and for a late request."""

    log_s: float = 30.0
    unknown_s: float = 3.0


@dataclass(frozen=True, slots=True)
class Found:
    """What it used. `basis` is "replica log" or "streamed"."""

    replica: str
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    basis: str
    reason: str


@dataclass(frozen=True, slots=True)
class Nothing:
    """It used nothing that anybody knows of."""

    reason: str


@dataclass(frozen=True, slots=True)
class Wait:
    """Ask again."""

    reason: str


def conclude(lost: Lost, patience: Patience) -> Found | Nothing | Wait:
    """What the request used, or that it is too early to say."""
    last = lost.attempts[-1]
    if last is Missing.UNKNOWN and lost.asked_s < patience.unknown_s:
        return Wait("it may not have arrived yet")
    if lost.asked_s < patience.log_s:
        if Missing.SILENT in lost.attempts:
            return Wait("a replica does not answer")
        if isinstance(last, Logged) and not last.finished:
            return Wait(f"{last.replica} still generates")
    logged = [attempt for attempt in lost.attempts if isinstance(attempt, Logged)]
    if isinstance(last, Logged):
        return _by_log(logged[0], last)
    if not lost.streamed_tokens:
        return Nothing(f"{last.value}, and nothing was streamed")
    return _by_stream(lost, logged, last)


def _by_log(first: Logged, last: Logged) -> Found:
    delivered_tokens = max(0, last.prompt_tokens - first.prompt_tokens)
    input_tokens = last.prompt_tokens - delivered_tokens
    end = "finished" if last.finished else "unfinished for too long"
    return Found(
        last.replica,
        input_tokens,
        min(last.cached_tokens, input_tokens),
        delivered_tokens + last.completion_tokens,
        "replica log",
        f"the log of {last.replica} has it, {end}",
    )


def _by_stream(lost: Lost, logged: Sequence[Logged], last: Missing) -> Found:
    replica = logged[0].replica if logged else ""
    input_tokens = logged[0].prompt_tokens if logged else lost.reserved_tokens
    cached_tokens = logged[0].cached_tokens if logged else 0
    reason = f"{last.value}: what was streamed counts"
    return Found(replica, input_tokens, cached_tokens, lost.streamed_tokens, "streamed", reason)
