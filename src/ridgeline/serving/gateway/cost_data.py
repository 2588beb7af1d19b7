"""A cost report as plain data and as amounts to print: no dollar is lost to rounding on the way."""

import datetime
from decimal import ROUND_FLOOR, Decimal
from typing import Any

from ridgeline.serving.gateway.cost import Line, Report

_CENT = Decimal("0.01")
#: Below this a bill is not worth writing in cents.
_SMALL = Decimal(1)


def per(usd: Decimal, count: int, many: int) -> Decimal | None:
    """The price of `many` where `count` cost so much; None where there was none."""
    return usd * many / count if count else None


def prices(line: Line) -> dict[str, tuple[Decimal | None, Decimal | None]]:
    """Floor and actual, for 1,000 requests and for a million tokens in and out."""
    used, floor = line.usage, line.floor_usd
    more = line.actual_usd / floor if floor else Decimal(0)

    def both(usd: Decimal, count: int, many: int) -> tuple[Decimal | None, Decimal | None]:
        return per(usd, count, many), per(usd * more, count, many)

    return {
        "per_1k_requests": both(floor, used.requests, 1_000),
        "per_million_input_tokens": both(line.prefill_usd, used.input_tokens, 1_000_000),
        "per_million_output_tokens": both(line.decode_usd, used.output_tokens, 1_000_000),
    }


_TOKENS = ("input_tokens", "cached_tokens", "output_tokens")


def lines_of_bill(report: Report) -> list[tuple[str, Decimal]]:
    """The bill's lines in cents, or finer where it is small: they add up to the last one.

    Each is rounded down, and what that leaves over is in `idle`.
    """
    step = _CENT if report.bill_usd >= _SMALL else Decimal("1e-6")
    total = report.bill_usd.quantize(step)
    shown = [(" · ".join(line.usage.of), _down(line.floor_usd, step)) for line in report.lines]
    if report.unsettled_usd:
        shown.append(("unsettled", _down(report.unsettled_usd, step)))
    loading = _down(report.loading_usd, step)
    drained = _down(report.drained_usd, step)
    idle = total - loading - drained - sum((amount for _, amount in shown), Decimal(0))
    own = [("idle", idle), ("loading", loading), ("drained", drained)]
    return [*shown, *own, ("total", total)]


def binds(report: Report) -> str:
    """What most of the money beyond the floor went to; empty where there is none."""
    beyond = {
        "idle": report.idle_usd,
        "loading": report.loading_usd,
        "drained": report.drained_usd,
        "unsettled": report.unsettled_usd,
    }
    most = max(beyond, key=lambda name: beyond[name])
    return most if beyond[most] > report.floor_usd * Decimal("0.01") else ""


def as_data(report: Report) -> dict[str, Any]:
    """For `--json` and HTTP: amounts are text, so that no reader makes floats of them."""
    return {
        "since": instant(report.period.minutes[0]),
        "until": instant(report.period.minutes[1]),
        "by": list(report.by),
        "lines": [_line(line, report.by) for line in report.lines],
        "unsettled_usd": text(report.unsettled_usd),
        "idle_usd": text(report.idle_usd),
        "loading_usd": text(report.loading_usd),
        "drained_usd": text(report.drained_usd),
        "bill_usd": text(report.bill_usd),
        "floor_usd": text(report.floor_usd),
        "busy_share": report.busy_share,
        "requests": report.requests,
        "step_times": dict(report.sources),
        "replicas_without_price": list(report.unpriced),
    }


def _line(line: Line, by: tuple[str, ...]) -> dict[str, Any]:
    used = line.usage
    told = {
        name: {"floor_usd": _known(floor), "actual_usd": _known(actual)}
        for name, (floor, actual) in prices(line).items()
    }
    return {
        **dict(zip(by, used.of, strict=True)),
        "requests": used.requests,
        **{name: getattr(used, name) for name in _TOKENS},
        "charged_usd": text(used.charged_usd),
        "prefill_usd": text(line.prefill_usd),
        "decode_usd": text(line.decode_usd),
        "floor_usd": text(line.floor_usd),
        "actual_usd": text(line.actual_usd),
        **told,
    }


def instant(minute: int) -> str:
    """A minute since 1970 as people write it, in UTC."""
    return datetime.datetime.fromtimestamp(minute * 60, datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")


def text(usd: Decimal) -> str:
    """An amount in full, without an exponent."""
    return f"{usd:f}"


def _known(usd: Decimal | None) -> str | None:
    return None if usd is None else text(usd.quantize(Decimal("1e-9")))


def _down(usd: Decimal, step: Decimal) -> Decimal:
    return usd.quantize(step, rounding=ROUND_FLOOR)
