"""Times as operators write them: cron expressions and time zones, and the floor they give."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError


@dataclass(frozen=True, slots=True)
class Floor:
    """From each time of `at` (cron, five fields) on there are at least `least` replicas."""

    at: str
    least: int


def check_timezone(name: str) -> None:
    """ValueError where no time zone is called so."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: the name of a folder of zones
        problem = f"{name!r} is no time zone: name one of the IANA database, e.g. UTC"
        raise ValueError(problem) from None


def check_cron(at: str) -> None:
    """ValueError where a cron expression is none."""
    try:
        CronSim(at, datetime(2000, 1, 1, tzinfo=ZoneInfo("UTC")))
    except CronSimError as error:
        raise ValueError(f"{at!r} is no cron expression ({error}), as `0 8 * * 1-5` is") from None


def floor_at(floors: Sequence[Floor], timezone: str, unix_s: float) -> int:
    """What the floor that began last wants; 0 where there is none yet."""
    # The search goes back from before the time that it is given: this very second counts too.
    now = datetime.fromtimestamp(unix_s + 1, ZoneInfo(timezone))
    latest: tuple[datetime, int] | None = None
    for floor in floors:
        began = next(CronSim(floor.at, now, reverse=True), None)
        if began is not None and (latest is None or began > latest[0]):
            latest = (began, floor.least)
    return latest[1] if latest else 0
