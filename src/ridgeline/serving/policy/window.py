"""What was used in the last 60 seconds, kept by the second. Pure.

    second       s          s + 1                                    s + 61
    ─────────────┼──────────┼──────────────────────────────────────────┼──▶
                 used here  └───────────── counts until 60 s after ─────┘

A second counts until 60 s after its end, so what any 60 seconds hold is never underestimated, and
is overestimated by a second at most.
"""

from dataclasses import dataclass

_LEAVES_S = 61
_NS = 1_000_000_000

#: The second (Unix), and in it: requests, input tokens, output tokens.
Second = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Window:
    """Amounts by second, oldest first, and their sums."""

    seconds: tuple[Second, ...] = ()
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


def aged(window: Window, now_ns: int) -> Window:
    """Without the seconds that no longer count."""
    seconds = window.seconds
    last_gone = now_ns // _NS - _LEAVES_S
    if not seconds or seconds[0][0] > last_gone:
        return window
    gone = 0
    requests, inputs, outputs = window.requests, window.input_tokens, window.output_tokens
    for second in seconds:
        if second[0] > last_gone:
            break
        gone += 1
        requests -= second[1]
        inputs -= second[2]
        outputs -= second[3]
    return Window(seconds[gone:], requests, inputs, outputs)


def counted(
    window: Window, at_ns: int, now_ns: int, *, requests: int = 0, inputs: int = 0, outputs: int = 0
) -> Window:
    """With more (or less) used at `at_ns`; unchanged where that no longer counts."""
    at = at_ns // _NS
    if at <= now_ns // _NS - _LEAVES_S or not (requests or inputs or outputs):
        return window
    seconds = window.seconds
    place = len(seconds)
    while place and seconds[place - 1][0] >= at:
        place -= 1
    known = place < len(seconds) and seconds[place][0] == at
    was = seconds[place] if known else (at, 0, 0, 0)
    new = (at, was[1] + requests, was[2] + inputs, was[3] + outputs)
    kept = (new,) if new[1] or new[2] or new[3] else ()
    return Window(
        seconds[:place] + kept + seconds[place + known :],
        window.requests + requests,
        window.input_tokens + inputs,
        window.output_tokens + outputs,
    )


def left_ns(window: Window, column: int, amount: int) -> int | None:
    """When so much of a column of `Second` has left; None where there is not so much in it."""
    for second in window.seconds:
        amount -= second[column]
        if amount <= 0:
            return (second[0] + _LEAVES_S) * _NS
    return None
