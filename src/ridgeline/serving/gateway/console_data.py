"""What the console shows that lies in the database: tenants, decisions, costs.

Reads only. Every answer is bounded, says what it left out, and has None where something is not
known. The functions block; `ConsoleData` asks them in threads and keeps their answers.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Engine, func, select

from ridgeline.serving.gateway.cost import Report, report
from ridgeline.serving.gateway.cost_data import as_data, prices
from ridgeline.serving.gateway.decisions import decision
from ridgeline.serving.gateway.kept import Kept
from ridgeline.serving.gateway.ledger_batch import Calendar
from ridgeline.serving.gateway.tenant_rows import Tenant, tenant_of
from ridgeline.serving.gateway.usage import MINUTE_NS, Period, usage
from ridgeline.serving.policy.limits import Account, Budget, Limits
from ridgeline.serving.policy.periods import Period as Span
from ridgeline.serving.policy.periods import period
from ridgeline.serving.policy.window import aged
from ridgeline.store.database import reading
from ridgeline.store.tables import (
    accounts,
    decisions,
    entries,
    replica_minutes,
    reservations,
    tenants,
)

MOST_TENANTS = 500
MOST_DECISIONS = 50  # shown; warmth is of more, so that a replica's share does not jump
WARMTH_DECISIONS = 200
MOST_SCORES = 8
MOST_LINES = 200
CACHED_NS = 600_000_000_000  # how far back the replicas' own counts of cached tokens are added up
HOURS: Final = (1, 24, 168)
_MOST_ASKING = 2  # threads that look up single requests


@dataclass(frozen=True, slots=True)
class Fill:
    """How full a limit is: used in the last minute, and held by running requests beside it."""

    name: str
    used: int
    held: int
    limit: int


@dataclass(frozen=True, slots=True)
class BudgetLeft:
    """A budget in its period. `left_usd` is what no request has spent or holds."""

    usd: Decimal
    per: str
    timezone: str
    spent_usd: Decimal
    held_usd: Decimal
    left_usd: Decimal
    ends_unix_s: float


@dataclass(frozen=True, slots=True)
class TenantUse:
    """A tenant today. Its class and weight are None where only requests name it."""

    name: str
    priority_class: str | None
    weight: float | None
    disabled: bool
    requests: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    charged_usd: Decimal
    running: int
    limits: tuple[Fill, ...]
    budget: BudgetLeft | None


@dataclass(frozen=True, slots=True)
class TenantsView:
    """All tenants by name; a day is one of UTC, and counts requests that began in it."""

    since_unix_s: float
    tenants: tuple[TenantUse, ...]
    left_out: int


class _Score(msgspec.Struct, frozen=True):
    replica: str
    load: int = 0
    backlog_tokens: int = 0
    warm_tokens: int = 0
    uncached_tokens: int = 0
    cost: float = 0


class _Route(msgspec.Struct, frozen=True):
    replica: str
    reason: str = ""
    scores: tuple[_Score, ...] = ()


class _Asked(msgspec.Struct, frozen=True):
    input_tokens: int = 0


class _View(msgspec.Struct, frozen=True):
    request: _Asked


class _Attempt(msgspec.Struct, frozen=True):
    view: _View
    route: _Route


class _Detail(msgspec.Struct, frozen=True):
    """Of a row of `decisions`, what a list of them shows; the rest is not even read."""

    model: str = ""
    rule: str = ""
    status: int = 0
    split_s: dict[str, float] = {}
    decisions: tuple[_Attempt, ...] = ()


_DETAIL = msgspec.json.Decoder(_Detail)


@dataclass(frozen=True, slots=True)
class Decided:
    """One request's last decision. Of `candidates` the chosen one's score comes first."""

    request_id: str
    at_unix_s: float
    tenant: str
    model: str
    rule: str
    status: int
    e2e_s: float
    attempts: int
    replica: str
    reason: str
    input_tokens: int
    candidates: int
    scores: tuple[_Score, ...]


@dataclass(slots=True)
class Warmth:
    """What of a replica's prompts was cached.

    `warm_share` is what routing believed, over its last decisions; `cached_share` what the replica
    itself counted in the last ten minutes, None also where it counted none: many do not say.
    """

    decisions: int = 0
    input_tokens: int = 0
    warm_tokens: int = 0
    warm_share: float | None = None
    cached_share: float | None = None


@dataclass(frozen=True, slots=True)
class RoutingView:
    """The last decisions, newest first, and each replica's warmth by its id."""

    decisions: tuple[Decided, ...]
    replicas: Mapping[str, Warmth]
    of_decisions: int


def tenants_view(store: Engine, calendar: Calendar, now_ns: int) -> TenantsView:
    """Every tenant with what it used today, how full its limits are and what budget is left."""
    today = period("day", "UTC", now_ns)
    with reading(store) as connection:
        known = connection.execute(select(tenants).order_by(tenants.c.name).limit(MOST_TENANTS))
        named = [tenant_of(row) for row in known]
        left_out = (connection.scalar(select(func.count()).select_from(tenants)) or 0) - len(named)
        used = _used(connection, today)
        if not left_out:
            strangers = sorted(set(used) - {one.name for one in named})
            left_out = max(0, len(named) + len(strangers) - MOST_TENANTS)
            strangers = strangers[: MOST_TENANTS - len(named)]
        else:
            strangers = []
        states = _accounts(connection, [*(one.name for one in named), *strangers])
        shown = [
            _tenant(connection, one, used.get(one.name), states.get(one.name), calendar, now_ns)
            for one in named
        ]
    shown += [_use(name, None, used[name], states.get(name), (), None) for name in strangers]
    ordered = tuple(sorted(shown, key=lambda one: one.name))
    return TenantsView(today.start_ns / 1e9, ordered, left_out)


def routing_view(store: Engine, now_ns: int) -> RoutingView:
    """The last decisions of all workers, and how warm the replicas are that they chose."""
    asked = select(decisions).order_by(decisions.c.at_ns.desc()).limit(WARMTH_DECISIONS)
    with reading(store) as connection:
        rows = connection.execute(asked).all()
    shown: list[Decided] = []
    warmth: dict[str, Warmth] = {}
    of_decisions = 0
    for row in rows:
        detail = _DETAIL.decode(row.detail)
        if not detail.decisions:
            continue
        last = detail.decisions[-1]
        _warmed(warmth.setdefault(last.route.replica, Warmth()), last)
        of_decisions += 1
        if len(shown) < MOST_DECISIONS:
            shown.append(_decided(row.request_id, row.at_ns, row.tenant, detail, last))
    for one in usage(store, Period(now_ns - CACHED_NS, now_ns), ["replica"]):
        if one.cached_tokens and one.input_tokens and one.of[0]:
            there = warmth.setdefault(one.of[0], Warmth())
            there.cached_share = one.cached_tokens / one.input_tokens
    return RoutingView(tuple(shown), warmth, of_decisions)


def cost_view(store: Engine, hours: int, now_ns: int) -> dict[str, Any]:
    """A report of the last hours as plain data, the dearest lines first.

    It ends with the last minute on record: requests after that have no seconds yet.
    """
    with reading(store) as connection:
        last = connection.scalar(select(func.max(replica_minutes.c.minute)))
    until_ns = now_ns if last is None else min(now_ns, (last + 1) * MINUTE_NS)
    since_ns = min(now_ns - hours * 3_600_000_000_000, until_ns - MINUTE_NS)
    found = report(store, Period(since_ns, until_ns))
    data = as_data(found)
    lines = sorted(
        data["lines"], key=lambda line: (-Decimal(line["actual_usd"]), -line["requests"])
    )
    return {
        **data,
        "hours": hours,
        "lines": lines[:MOST_LINES],
        "left_out": max(0, len(lines) - MOST_LINES),
        "whole": _whole(found),
    }


class ConsoleData:
    """The answers for the console's page. `close` before the store is disposed of."""

    def __init__(self, store: Engine, now_ns: Callable[[], int] = time.time_ns) -> None:
        calendar = Calendar()
        self._store = store
        self._tenants = Kept(lambda: msgspec.json.encode(tenants_view(store, calendar, now_ns())))
        self._routing = Kept(lambda: msgspec.json.encode(routing_view(store, now_ns())))
        self._costs = {hours: Kept(_cost_of(store, hours, now_ns)) for hours in HOURS}
        self._asking = asyncio.Semaphore(_MOST_ASKING)

    async def tenants(self) -> bytes:
        """A `TenantsView` as JSON. Raises StoreError, as the others do."""
        return await self._tenants.get()

    async def routing(self) -> bytes:
        """A `RoutingView` as JSON."""
        return await self._routing.get()

    async def cost(self, hours: int) -> bytes:
        """A `cost_view` as JSON; `hours` is one of `HOURS`."""
        return await self._costs[hours].get()

    async def why(self, request_id: str) -> dict[str, Any] | None:
        """All that was decided for a request; None where nothing is on record."""
        async with self._asking:
            return await asyncio.to_thread(decision, self._store, request_id)

    async def close(self) -> None:
        """Wait for threads that are still at work."""
        for kept in (self._tenants, self._routing, *self._costs.values()):
            await kept.close()


def _cost_of(store: Engine, hours: int, now_ns: Callable[[], int]) -> Callable[[], bytes]:
    return lambda: msgspec.json.encode(cost_view(store, hours, now_ns()))


@dataclass(frozen=True, slots=True)
class _Used:
    requests: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    usd: Decimal = Decimal(0)


def _used(connection: Connection, today: Span) -> dict[str, _Used]:
    """What each tenant's requests of today have used so far."""
    row = entries.c
    asked = (
        select(
            row.tenant,
            func.count(),
            func.sum(row.input_tokens),
            func.sum(row.cached_tokens),
            func.sum(row.output_tokens),
            func.sum(row.usd),
        )
        .where(row.began_ns >= today.start_ns, row.began_ns < today.end_ns)
        .group_by(row.tenant)
    )
    # PostgreSQL sums whole numbers into its decimal type.
    return {
        name: _Used(requests, int(prompt), int(cached), int(output), usd)
        for name, requests, prompt, cached, output, usd in connection.execute(asked)
    }


def _accounts(connection: Connection, names: Sequence[str]) -> dict[str, Account]:
    """The state of the tenants' limits; who never asked has none."""
    subjects = {f"tenant:{name}": name for name in names}
    asked = select(accounts).where(accounts.c.subject.in_(list(subjects)))
    return {
        subjects[subject]: msgspec.json.decode(state, type=Account)
        for subject, state in connection.execute(asked)
        if state
    }


def _tenant(
    connection: Connection,
    tenant: Tenant,
    used: _Used | None,
    account: Account | None,
    calendar: Calendar,
    now_ns: int,
) -> TenantUse:
    limits = tenant.limits.limits
    known = account or Account()
    left = None
    if limits.budget is not None:
        left = _left(connection, tenant.name, limits.budget, known, calendar, now_ns)
    return _use(tenant.name, tenant, used or _Used(), account, fills(known, limits, now_ns), left)


def _use(
    name: str,
    tenant: Tenant | None,
    used: _Used,
    account: Account | None,
    limits: tuple[Fill, ...],
    budget: BudgetLeft | None,
) -> TenantUse:
    return TenantUse(
        name,
        tenant.priority_class if tenant else None,
        tenant.weight if tenant else None,
        disabled=tenant is not None and tenant.disabled_ns is not None,
        requests=used.requests,
        input_tokens=used.input_tokens,
        cached_tokens=used.cached_tokens,
        output_tokens=used.output_tokens,
        charged_usd=used.usd,
        running=account.open if account else 0,
        limits=limits,
        budget=budget,
    )


def fills(account: Account, limits: Limits, now_ns: int) -> tuple[Fill, ...]:
    """Each limit that there is, as `policy.limits` counts it now."""
    window = aged(account.window, now_ns)
    counted = (
        ("requests_per_minute", window.requests, 0, limits.requests_per_minute),
        ("input_tokens_per_minute", window.input_tokens, 0, limits.input_tokens_per_minute),
        (
            "output_tokens_per_minute",
            window.output_tokens,
            account.held_output_tokens,
            limits.output_tokens_per_minute,
        ),
        ("concurrent", account.open, 0, limits.concurrent),
    )
    return tuple(
        Fill(name, used, held, limit) for name, used, held, limit in counted if limit is not None
    )


def _left(
    connection: Connection,
    name: str,
    budget: Budget,
    account: Account,
    calendar: Calendar,
    now_ns: int,
) -> BudgetLeft:
    """By the account, or by the rows where it has not counted this period yet."""
    current = calendar.period(budget, now_ns)
    assert current is not None, "there is a budget"
    if account.period == current:
        spent_usd, held_usd = account.spent_usd, account.held_usd
    else:
        spent_usd = _sum(connection, entries.c, name, current)
        held_usd = _sum(connection, reservations.c, name, current)
    return BudgetLeft(
        budget.usd,
        budget.per,
        budget.timezone,
        spent_usd,
        held_usd,
        budget.usd - spent_usd - held_usd,
        current.end_ns / 1e9,
    )


def _sum(connection: Connection, row: Any, tenant: str, current: Span) -> Decimal:
    asked = select(func.sum(row.usd)).where(
        row.tenant == tenant, row.began_ns >= current.start_ns, row.began_ns < current.end_ns
    )
    return connection.scalar(asked) or Decimal(0)


def _warmed(there: Warmth, last: _Attempt) -> None:
    route, tokens = last.route, last.view.request.input_tokens
    warm = next((s.warm_tokens for s in route.scores if s.replica == route.replica), 0)
    there.decisions += 1
    there.input_tokens += tokens
    there.warm_tokens += warm
    there.warm_share = there.warm_tokens / there.input_tokens if there.input_tokens else None


def _decided(request_id: str, at_ns: int, tenant: str, detail: _Detail, last: _Attempt) -> Decided:
    route = last.route
    scores = sorted(route.scores, key=lambda one: (one.replica != route.replica, one.cost))
    return Decided(
        request_id,
        at_ns / 1e9,
        tenant,
        detail.model,
        detail.rule,
        detail.status,
        sum(detail.split_s.values()),
        len(detail.decisions),
        route.replica,
        route.reason,
        last.view.request.input_tokens,
        len(scores),
        tuple(scores[:MOST_SCORES]),
    )


def _whole(found: Report) -> dict[str, Any]:
    """The prices of all requests together."""
    return {
        name: {
            "floor_usd": None if floor is None else f"{floor:f}",
            "actual_usd": None if actual is None else f"{actual:f}",
        }
        for name, (floor, actual) in prices(found.whole).items()
    }
