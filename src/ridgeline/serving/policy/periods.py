"""When a budget begins anew: the calendar day or month of a time zone around an instant. Pure.

A day is from midnight to midnight on the clocks of its zone, so 23 or 25 hours where they change.
A midnight that strikes twice counts when it strikes last; one that is skipped, when it would have
struck. So every instant lies in exactly one period.
"""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

_NS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1)
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Period:
    """From `start_ns` up to, not including, `end_ns`."""

    start_ns: int
    end_ns: int

    def holds(self, at_ns: int) -> bool:
        """Whether the instant lies in it."""
        return self.start_ns <= at_ns < self.end_ns


def period(per: str, timezone: str, at_ns: int) -> Period:
    """The "day" or "month" in the zone (IANA name) that holds the instant."""
    assert per in ("day", "month"), per
    zone = ZoneInfo(timezone)
    today = datetime.fromtimestamp(at_ns // _NS, zone).date()
    first = today if per == "day" else today.replace(day=1)
    # Where clocks change around midnight, the calendar on the wall can be a day off.
    while at_ns < _start_ns(first, zone):
        first = _before(first, per)
    while at_ns >= _start_ns(_after(first, per), zone):
        first = _after(first, per)
    return Period(_start_ns(first, zone), _start_ns(_after(first, per), zone))


def _after(first: date, per: str) -> date:
    if per == "day":
        return first + timedelta(days=1)
    return (first + timedelta(days=31)).replace(day=1)


def _before(first: date, per: str) -> date:
    last = first - timedelta(days=1)
    return last if per == "day" else last.replace(day=1)


def _start_ns(day: date, zone: ZoneInfo) -> int:
    """Midnight. The smaller offset is that of the later of two, and that before a gap."""
    midnight = datetime(day.year, day.month, day.day)
    offsets = [midnight.replace(tzinfo=zone, fold=fold).utcoffset() for fold in (0, 1)]
    offset = min(offset for offset in offsets if offset is not None)
    return (midnight - offset - _EPOCH) // _SECOND * _NS
