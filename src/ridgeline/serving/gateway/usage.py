"""What was used, from the ledger: by group, entry by entry, and as what a bill is shared by.

Called by `cost`, the console and the admin API. Every answer is bounded, and goes on where the one
before it ended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy import Engine, Float, Row, Select, case, cast, func, select, tuple_

from ridgeline.errors import SpecError
from ridgeline.serving.policy.attribution import Use
from ridgeline.store.database import reading
from ridgeline.store.tables import entries, replica_minutes

MINUTE_NS = 60_000_000_000
#: What usage can be grouped by, and the column that it is.
GROUPS = {
    "tenant": entries.c.tenant,
    "model": entries.c.model,
    "key": entries.c.key_id,
    "replica": entries.c.replica,
}
MOST_ROWS = 1_000


@dataclass(frozen=True, slots=True)
class Period:
    """From the minute of `since_ns` up to that of `until_ns`, not included; Unix nanoseconds."""

    since_ns: int
    until_ns: int

    def __post_init__(self) -> None:
        if self.since_ns >= self.until_ns:
            raise SpecError(
                "ends before it begins", where="period", remedy="--since before --until"
            )

    @property
    def minutes(self) -> tuple[int, int]:
        """First and last, the last not included."""
        return self.since_ns // MINUTE_NS, -(-self.until_ns // MINUTE_NS)

    @property
    def began(self) -> Any:
        """A condition on `entries`: requests that began in one of its minutes."""
        first, end = (minute * MINUTE_NS for minute in self.minutes)
        return (entries.c.began_ns >= first) & (entries.c.began_ns < end)


@dataclass(frozen=True, slots=True)
class Usage:
    """What one group used and was charged. `of` has a value for each word of `by`."""

    of: Use
    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    charged_usd: Decimal = Decimal(0)

    def plus(self, other: "Usage") -> "Usage":
        """Both, under the name of this one."""
        return Usage(
            self.of,
            self.requests + other.requests,
            self.input_tokens + other.input_tokens,
            self.cached_tokens + other.cached_tokens,
            self.output_tokens + other.output_tokens,
            self.charged_usd + other.charged_usd,
        )


@dataclass(frozen=True, slots=True)
class Page:
    """Ledger entries, newest first; `next_id` goes on from here, None at the end."""

    entries: tuple[Mapping[str, Any], ...]
    next_id: int | None


def usage(
    store: Engine,
    period: Period,
    by: Sequence[str],
    *,
    only: Mapping[str, str] | None = None,
    after: Use | None = None,
    most: int = MOST_ROWS,
) -> list[Usage]:
    """Usage by group, in the order of the groups' names; `after` goes on behind the last one.

    `only` keeps to e.g. one tenant. Raises SpecError for a word that is not in `GROUPS`.
    """
    columns = [_column(word) for word in by]
    asked = (
        select(*columns, *_sums())
        .where(period.began, *(_column(word) == value for word, value in (only or {}).items()))
        .group_by(*columns)
        .order_by(*columns)
        .limit(min(most, MOST_ROWS))
    )
    if after is not None:
        asked = asked.where(tuple_(*columns) > tuple_(*after))
    with reading(store) as connection:
        return [usage_of(row, len(columns)) for row in connection.execute(asked)]


def newest(
    store: Engine,
    *,
    only: Mapping[str, str] | None = None,
    before_id: int | None = None,
    most: int = 100,
) -> Page:
    """A page of the ledger itself."""
    most = min(most, MOST_ROWS)
    asked = select(entries).order_by(entries.c.id.desc()).limit(most)
    asked = asked.where(*(_column(word) == value for word, value in (only or {}).items()))
    if before_id is not None:
        asked = asked.where(entries.c.id < before_id)
    with reading(store) as connection:
        rows = tuple(dict(row) for row in connection.execute(asked).mappings())
    return Page(rows, rows[-1]["id"] if len(rows) == most else None)


def _sums() -> list[Any]:
    return [
        func.count().label("requests"),
        func.sum(entries.c.input_tokens).label("input_tokens"),
        func.sum(entries.c.cached_tokens).label("cached_tokens"),
        func.sum(entries.c.output_tokens).label("output_tokens"),
        func.sum(entries.c.usd).label("usd"),
    ]


def uses_of(period: Period) -> Select[Any]:
    """Usage and work of each tenant, model, key and replica; `attribution.work` as sums.

    Products are floats: their sums pass what SQLite can hold in an integer.
    """
    asked = cast(entries.c.input_tokens, Float)
    cached = case(
        (entries.c.cached_tokens > entries.c.input_tokens, asked),
        else_=cast(entries.c.cached_tokens, Float),
    )
    said = cast(entries.c.output_tokens, Float)
    fresh = asked - cached
    return (
        select(
            *GROUPS.values(),
            *_sums(),
            func.sum(fresh).label("prompt"),
            func.sum(fresh * (cached + fresh / 2)).label("attended"),
            func.sum(said * (asked + said / 2)).label("context"),
            func.sum(cast(entries.c.ended_ns - entries.c.began_ns, Float)).label("spent_ns"),
        )
        .where(period.began)
        .group_by(*GROUPS.values())
    )


def hours_of(period: Period) -> Select[Any]:
    """What each replica did in the period, at each of its prices; the last one last."""
    first, end = period.minutes
    table = replica_minutes.c
    return (
        select(
            table.replica,
            table.model,
            table.usd_per_hour,
            *(func.sum(one).label(one.name) for one in SPENT),
        )
        .where(table.minute >= first, table.minute < end)
        .group_by(table.replica, table.model, table.usd_per_hour)
        .order_by(table.replica, func.max(table.minute))
    )


#: The spans of a replica's minutes, in the order of `attribution.Hours`.
SPENT = (
    replica_minutes.c.busy_ns,
    replica_minutes.c.idle_ns,
    replica_minutes.c.loading_ns,
    replica_minutes.c.draining_ns,
)


def usage_of(row: Row[Any], width: int) -> Usage:
    """From a row whose first columns are the group's names."""
    return Usage(
        tuple(row[:width]),
        row.requests,
        int(row.input_tokens),
        int(row.cached_tokens),
        int(row.output_tokens),
        row.usd,
    )


def known(word: str) -> str:
    """The word, if usage can be grouped by it; SpecError where it cannot."""
    if word not in GROUPS:
        raise SpecError(
            f"{word!r} is nothing to group by", where="by", remedy=f"some of: {', '.join(GROUPS)}"
        )
    return word


def _column(word: str) -> Any:
    return GROUPS[known(word)]
