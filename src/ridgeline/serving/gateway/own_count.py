"""Who is believed about tokens: the replica's usage, checked against what passed by here.

A replica's usage is charged as it is, zeros included, but never more of an answer than the replica
was allowed. Where there is none, or one that cannot be (less than nothing, billions), the gateway's
own count is: a prompt by its size in bytes, an answer by the events that carried text. Where both
are there and far apart, that is a finding for logs and metrics, and changes no charge.
"""

from dataclasses import dataclass

from ridgeline.serving.gateway.ledger_rows import Actual
from ridgeline.serving.gateway.sse import Usage

#: Engines send a few tokens in one event and a character of several tokens in one too.
_APART = 2
_APART_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Counted:
    """What passed by: events with text, and the estimate of the prompt.

    `most_output_tokens` is the bound that the replica was told; None where it was told none.
    """

    input_tokens: int
    events: int
    most_output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Reckoned:
    """What to charge, and what is strange about it ("": nothing)."""

    actual: Actual
    finding: str


def reckon(
    usage: Usage | None, counted: Counted, *, replica: str, status: int, stream: bool
) -> Reckoned:
    """What an answer that came to its end used. Events say something of a `stream` only."""
    if usage is None or not usage.is_possible:
        actual = Actual(replica, status, counted.input_tokens, 0, counted.events, "own count")
        told = "no usage" if usage is None else "a usage that cannot be"
        return Reckoned(actual, f"{replica} sent {told}: charged by own count")
    details = usage.prompt_tokens_details
    cached_tokens = (details.cached_tokens or 0) if details else 0
    said, most = usage.completion_tokens, counted.most_output_tokens
    finding = _mismatch(said, counted.events) if stream else ""
    if most is not None and said > most:
        finding = f"{replica} says {said} tokens of answer, {most} were allowed: charged {most}"
        said = most
    actual = Actual(replica, status, usage.prompt_tokens, cached_tokens, said, "usage")
    return Reckoned(actual, finding)


def _mismatch(said: int, events: int) -> str:
    low, high = sorted((said, events))
    if high - low <= _APART_TOKENS or high <= _APART * low:
        return ""
    return f"the replica says {said} tokens of answer, but {events} events with text passed"
