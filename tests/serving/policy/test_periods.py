from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.periods import Period, period

HOUR_NS = 3_600_000_000_000
ZONES = (
    "Europe/Berlin",
    "America/New_York",
    "Asia/Kolkata",
    "Australia/Lord_Howe",
    "America/Sao_Paulo",
    "America/St_Johns",
    "Pacific/Apia",
)


def ns(text: str, zone: str = "UTC", *, fold: int = 0) -> int:
    local = datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold)
    return int(local.timestamp()) * 1_000_000_000


@pytest.mark.parametrize(
    ("zone", "at", "start", "end"),
    [
        ("Europe/Berlin", "2026-11-30T23:30", "2026-12-01T00:00+01:00", "2026-12-02T00:00+01:00"),
        (
            "America/New_York",
            "2026-12-01T04:59:59",
            "2026-11-30T00:00-05:00",
            "2026-12-01T00:00-05:00",
        ),
        (
            "Asia/Kolkata",
            "2026-12-01T18:30",
            "2026-12-02T00:00+05:30",
            "2026-12-03T00:00+05:30",
        ),
    ],
)
def test_a_day_is_from_midnight_to_midnight_on_the_zones_clocks(
    zone: str, at: str, start: str, end: str
) -> None:
    expected = Period(*(int(datetime.fromisoformat(t).timestamp()) * 10**9 for t in (start, end)))
    assert period("day", zone, ns(at)) == expected


@pytest.mark.parametrize(
    ("zone", "day", "hours"),
    [
        ("Europe/Berlin", "2026-03-29", 23),
        ("Europe/Berlin", "2026-10-25", 25),
        ("America/New_York", "2026-03-08", 23),
        ("America/New_York", "2026-11-01", 25),
        ("Australia/Lord_Howe", "2026-10-04", 23.5),
        ("Australia/Lord_Howe", "2026-04-05", 24.5),
        ("Asia/Kolkata", "2026-03-29", 24),
        ("America/Sao_Paulo", "2018-11-04", 23),  # midnight itself was skipped
        ("America/Sao_Paulo", "2018-02-17", 25),  # the hour before midnight came twice
    ],
)
def test_a_day_on_which_clocks_change_is_as_long_as_it_is(
    zone: str, day: str, hours: float
) -> None:
    found = period("day", zone, ns(f"{day}T12:00", zone))
    assert found.end_ns - found.start_ns == hours * HOUR_NS


def test_a_month_is_from_its_first_midnight_to_the_nexts() -> None:
    found = period("month", "Europe/Berlin", ns("2026-03-31T23:59:59", "Europe/Berlin"))
    assert found == Period(
        ns("2026-03-01T00:00", "Europe/Berlin"), ns("2026-04-01T00:00", "Europe/Berlin")
    )
    assert found.end_ns - found.start_ns == (31 * 24 - 1) * HOUR_NS


def test_a_day_that_a_zone_skipped_has_no_instants() -> None:
    # Samoa went from 29 to 31 December 2011.
    before = period("day", "Pacific/Apia", ns("2011-12-29T12:00", "Pacific/Apia"))
    after = period("day", "Pacific/Apia", ns("2011-12-31T12:00", "Pacific/Apia"))
    assert before.end_ns == after.start_ns


@given(
    st.sampled_from(ZONES),
    st.sampled_from(["day", "month"]),
    st.integers(ns("1995-01-01T00:00"), ns("2035-01-01T00:00")),
)
def test_every_instant_lies_in_one_period_and_the_next_begins_where_it_ends(
    zone: str, per: str, at_ns: int
) -> None:
    found = period(per, zone, at_ns)
    assert found.holds(at_ns)
    assert period(per, zone, found.start_ns) == found
    assert period(per, zone, found.end_ns - 1) == found
    assert period(per, zone, found.end_ns).start_ns == found.end_ns
    local = datetime.fromtimestamp(found.start_ns // 10**9, UTC).astimezone(ZoneInfo(zone))
    assert local.time().replace(fold=0) <= (datetime.min + timedelta(hours=1)).time()
