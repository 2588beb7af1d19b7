"""Floors by the time of day."""

from datetime import UTC, datetime

import pytest

from ridgeline.serving.schedule import Floor, check_cron, check_timezone, floor_at

DAY = [Floor("0 8 * * 1-5", 4), Floor("0 20 * * *", 1)]


def at(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("when", "wanted"),
    [
        ("2026-12-01T07:59:58", 1),
        ("2026-12-01T08:00:00", 4),
        ("2026-12-01T19:59:00", 4),
        ("2026-12-01T20:00:00", 1),
        ("2026-12-05T12:00:00", 1),  # a Saturday
    ],
)
def test_the_entry_that_began_last_counts(when, wanted) -> None:
    assert floor_at(DAY, "UTC", at(when)) == wanted


def test_it_is_the_time_of_the_zone_that_counts() -> None:
    assert floor_at(DAY, "Europe/Berlin", at("2026-12-01T07:00:00")) == 4
    assert floor_at(DAY, "Europe/Berlin", at("2026-07-01T06:00:00")) == 4  # summer time


def test_without_a_schedule_there_is_no_floor() -> None:
    assert floor_at([], "UTC", at("2026-12-01T08:00:00")) == 0


def test_what_is_no_cron_expression_or_zone_is_refused() -> None:
    check_cron("*/5 * * * *")
    check_timezone("Asia/Kolkata")
    for wrong in ("", "8 o'clock", "61 * * * *", "* * * *"):
        with pytest.raises(ValueError, match="cron"):
            check_cron(wrong)
    for wrong in ("", "Berlin", "../etc/passwd", "Europe"):
        with pytest.raises(ValueError, match="time zone"):
            check_timezone(wrong)
