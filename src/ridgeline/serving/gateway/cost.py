"""What was used and what it cost: for `ridgeline cost`, the console and the admin API.

Reads the ledger (`usage`) and the replicas' minutes, and lets `policy.attribution` share the hours.
All money is `Decimal`; the lines of a report add up to the hardware's bill exactly.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from sqlalchemy import Engine, Row

from ridgeline.serving.gateway.config import ANY
from ridgeline.serving.gateway.usage import (
    GROUPS,
    SPENT,
    Period,
    Usage,
    hours_of,
    known,
    usage_of,
    uses_of,
)
from ridgeline.serving.plan.step_rates import STAND_IN, rates, step_time_of
from ridgeline.serving.policy.attribution import Bill, Hours, Rates, Use, Work, attribute
from ridgeline.store.database import reading

NANO = Decimal("1e-9")
#: Ends the source of step times that nobody named for a model.
STANDS_IN = ", which stand in"


@dataclass(frozen=True, slots=True)
class Line:
    """A group's usage with its cost: the floor is its part of busy seconds, in two halves.

    `actual_usd` has its part of what nobody caused too: its models' idle, loading and drained
    seconds, in proportion to the floor.
    """

    usage: Usage
    prefill_usd: Decimal
    decode_usd: Decimal
    actual_usd: Decimal

    @property
    def floor_usd(self) -> Decimal:
        """What it would cost were no second idle."""
        return self.prefill_usd + self.decode_usd


@dataclass(frozen=True, slots=True)
class Report:
    """A period's costs. The lines' floors and the other four are `bill_usd` when added up.

    `busy_share` is by money. `sources` says for each model whose step times shared its seconds.
    """

    period: Period
    by: tuple[str, ...]
    lines: tuple[Line, ...]
    unsettled_usd: Decimal
    idle_usd: Decimal
    loading_usd: Decimal
    drained_usd: Decimal
    bill_usd: Decimal
    sources: Mapping[str, str] = field(default_factory=dict)
    unpriced: tuple[str, ...] = ()

    @property
    def floor_usd(self) -> Decimal:
        """Of all lines."""
        return sum((line.floor_usd for line in self.lines), Decimal(0))

    @property
    def requests(self) -> int:
        """Of all lines."""
        return sum(line.usage.requests for line in self.lines)

    @property
    def whole(self) -> Line:
        """All lines as one, which pays for everything."""
        used = Usage(())
        for line in self.lines:
            used = used.plus(line.usage)
        prefill = sum((line.prefill_usd for line in self.lines), Decimal(0))
        return Line(used, prefill, self.floor_usd - prefill, self.bill_usd)

    @property
    def busy_share(self) -> float | None:
        """Of the bill, what was spent on busy seconds; None without a bill."""
        return float(self.floor_usd / self.bill_usd) if self.bill_usd else None


def report(
    store: Engine,
    period: Period,
    by: Sequence[str] = ("tenant", "model"),
    *,
    like: Mapping[str, str] | None = None,
) -> Report:
    """A period's costs by group. `like` names MODEL@ACCELERATOR for a model, `""` for all others.

    Raises SpecError for a word that is not in `GROUPS`, or a name that the catalog has not.
    """
    places = [list(GROUPS).index(known(word)) for word in by]
    with reading(store) as connection:
        hours = _hours(connection.execute(hours_of(period)).all())
        rows = connection.execute(uses_of(period)).all()
    uses: dict[str, dict[Use, Row[Any]]] = defaultdict(dict)
    for row in rows:
        uses[row.replica][tuple(row[:4])] = row
    shared = _shared(hours, uses, like or {})
    floors = _Floors(places)
    for replica, bill in shared.bills.items():
        floors.add(shared.models[replica], bill)
    usages = _grouped(rows, places)
    lines = tuple(floors.line(usages[of]) for of in sorted(usages))
    return Report(
        period,
        tuple(by),
        lines,
        unsettled_usd=_sum(shared.bills, "unsettled"),
        idle_usd=_sum(shared.bills, "idle"),
        loading_usd=_sum(shared.bills, "loading"),
        drained_usd=_sum(shared.bills, "drained"),
        bill_usd=_sum(shared.bills, "total"),
        sources=shared.sources,
        unpriced=tuple(sorted(name for name, some in hours.items() if not _is_priced(some[1]))),
    )


@dataclass(slots=True)
class _Shared:
    """Each replica's bill and model, and whose step times shared each model's seconds."""

    bills: dict[str, Bill] = field(default_factory=dict)
    models: dict[str, str] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)


_Hours = dict[str, tuple[str, list[Hours]]]


def _shared(
    hours: _Hours, uses: Mapping[str, Mapping[Use, Row[Any]]], like: Mapping[str, str]
) -> _Shared:
    shared = _Shared()
    find = _rates_of(hours, uses, like)
    for replica in sorted({*hours, *uses}):
        there = uses.get(replica, {})
        model, some = hours.get(replica, (ANY, []))
        if model == ANY and there:  # a server that serves what it says: what it was asked for
            model = max(there.values(), key=lambda row: row.requests).model
        found = find(model)
        works = {use: _work(row) for use, row in there.items()}
        shared.bills[replica] = attribute(some, works, found)
        shared.models[replica] = model
        if there:
            shared.sources[model] = found.source
    return shared


def _rates_of(
    hours: _Hours, uses: Mapping[str, Mapping[Use, Row[Any]]], like: Mapping[str, str]
) -> Callable[[str], Rates]:
    """Rates of each model, at as many requests at once as ran on average (Little's law)."""
    spent_ns: dict[str, float] = defaultdict(float)
    busy_ns: dict[str, int] = defaultdict(int)
    for replica, (model, some) in hours.items():
        busy_ns[model] += sum(one.busy_ns for one in some)
        spent_ns[model] += sum(float(row.spent_ns) for row in uses.get(replica, {}).values())
    known: dict[str, Rates] = {}

    def find(model: str) -> Rates:
        if model not in known:
            named = like.get(model) or like.get("")
            step, source = step_time_of(named or STAND_IN)
            found = rates(step, spent_ns[model] / (busy_ns[model] or 1), source)
            known[model] = found if named else replace(found, source=f"{found.source}{STANDS_IN}")
        return known[model]

    return find


class _Floors:
    """What groups cost, added up over replicas; and what their models cost beyond that."""

    def __init__(self, places: Sequence[int]) -> None:
        self._places = places
        self._prefill: dict[Use, int] = defaultdict(int)
        self._decode: dict[Use, int] = defaultdict(int)
        self._by_model: dict[Use, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._settled: dict[str, int] = defaultdict(int)
        self._total: dict[str, int] = defaultdict(int)

    def add(self, model: str, bill: Bill) -> None:
        """One replica's bill."""
        self._total[model] += bill.total
        for use, share in bill.uses.items():
            of = tuple(use[place] for place in self._places)
            self._prefill[of] += share.prefill
            self._decode[of] += share.decode
            self._by_model[of][model] += share.busy
            self._settled[model] += share.busy

    def line(self, used: Usage) -> Line:
        """A group's line."""
        of = used.of
        actual = sum(
            floor * self._total[model] // self._settled[model]
            for model, floor in self._by_model[of].items()
            if self._settled[model]
        )
        return Line(used, *(_usd(nano) for nano in (self._prefill[of], self._decode[of], actual)))


def _hours(rows: Sequence[Row[Any]]) -> _Hours:
    """For each replica its model (the last one, should it have changed) and its hours."""
    found: _Hours = {}
    for row in rows:
        price = int(row.usd_per_hour / NANO)
        spent = Hours(price, *(int(getattr(row, one.name)) for one in SPENT))
        before = found.get(row.replica, ("", []))[1]
        found[row.replica] = (row.model, [*before, spent])
    return found


def _work(row: Row[Any]) -> Work:
    return Work(
        *(float(part) for part in (row.prompt, row.attended, row.output_tokens, row.context))
    )


def _grouped(rows: Sequence[Row[Any]], places: Sequence[int]) -> dict[Use, Usage]:
    """Usage of finer groups, added up to coarser ones."""
    found: dict[Use, Usage] = {}
    for row in rows:
        more = usage_of(row, len(GROUPS))
        of = tuple(more.of[place] for place in places)
        found[of] = found.get(of, Usage(of)).plus(more)
    return found


def _sum(bills: Mapping[str, Bill], part: str) -> Decimal:
    return _usd(sum(getattr(bill, part) for bill in bills.values()))


def _usd(nano: int) -> Decimal:
    return Decimal(nano) * NANO


def _is_priced(some: Sequence[Hours]) -> bool:
    return any(one.nano_usd_per_hour for one in some)
