"""What was used, summed from the ledger's entries: by tenant, key, model and day of UTC."""

import datetime
from collections.abc import Sequence
from typing import Any

from msgspec import UNSET
from sqlalchemy import ColumnElement, Engine, func, select

from ridgeline.serving.gateway.admin_wire import OwnUsageQuery, ShownUsage, UsagePage
from ridgeline.store.database import reading
from ridgeline.store.tables import entries

_DAY_NS = 86_400 * 10**9
_EPOCH = datetime.date(1970, 1, 1)
#: Days where the query names none.
_DAYS = 30

_GROUPS: dict[str, ColumnElement[Any]] = {
    "tenant": entries.c.tenant,
    "key": entries.c.key_id,
    "model": entries.c.model,
    "day": entries.c.began_ns // _DAY_NS,
}
_SUMS = (
    func.count(),
    func.sum(entries.c.input_tokens),
    func.sum(entries.c.cached_tokens),
    func.sum(entries.c.output_tokens),
    func.sum(entries.c.usd),
)


def usage(
    engine: Engine, query: OwnUsageQuery, *, tenant: str | None, today: datetime.date
) -> UsagePage:
    """Usage that a query asks for, of one tenant or of all."""
    by = list(dict.fromkeys(query.by.split(",")))
    groups = [_GROUPS[name].label(name) for name in by]
    chosen = select(*groups, *_SUMS).where(*_wanted(query, tenant, today)).group_by(*groups)
    page = chosen.order_by(*groups).limit(query.limit + 1).offset(query.offset)
    with reading(engine) as connection:
        rows = [_shown(by, row) for row in connection.execute(page)]
    return UsagePage(rows[: query.limit], has_more=len(rows) > query.limit)


def _wanted(
    query: OwnUsageQuery, tenant: str | None, today: datetime.date
) -> list[ColumnElement[bool]]:
    until = today if query.until is UNSET else query.until
    since = until - _days_before(until) if query.since is UNSET else query.since
    wanted = [
        entries.c.began_ns >= _began_ns(since),
        entries.c.began_ns < _began_ns(until) + _DAY_NS,
    ]
    if tenant is not None:
        wanted.append(entries.c.tenant == tenant)
    if query.key is not UNSET:
        wanted.append(entries.c.key_id == query.key)
    if query.model is not UNSET:
        wanted.append(entries.c.model == query.model)
    return wanted


def _days_before(until: datetime.date) -> datetime.timedelta:
    """Thirty days with `until` among them, or as many as the calendar has."""
    return min(datetime.timedelta(_DAYS - 1), until - datetime.date.min)


def _began_ns(day: datetime.date) -> int:
    """A day's first nanosecond; days that no clock of ours can reach are as good as the last."""
    farthest = 2**62
    return max(-farthest, min(farthest, (day - _EPOCH).days * _DAY_NS))


def _shown(by: Sequence[str], row: Sequence[Any]) -> ShownUsage:
    names = {name: _name(name, value) for name, value in zip(by, row, strict=False)}
    requests, prompt, cached, output, usd = row[len(by) :]
    # PostgreSQL sums whole numbers into its decimal type.
    return ShownUsage(requests, int(prompt), int(cached), int(output), f"{usd:.9f}", **names)


def _name(group: str, value: Any) -> str:
    return str(_EPOCH + datetime.timedelta(int(value))) if group == "day" else str(value)
