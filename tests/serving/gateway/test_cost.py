"""What was used and what it cost, from a ledger on each kind of database."""

from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine

from entry_rows import add
from ridgeline.errors import SpecError
from ridgeline.serving.gateway.cost import report
from ridgeline.serving.gateway.cost_data import as_data, binds, lines_of_bill, prices
from ridgeline.serving.gateway.replica_time import write_minutes
from ridgeline.serving.gateway.usage import MINUTE_NS, Period
from ridgeline.serving.plan.step_rates import rates, step_time_of
from ridgeline.serving.policy import attribution
from ridgeline.store.database import open_store

HOUR_NS = 60 * MINUTE_NS
DAY = Period(0, 24 * HOUR_NS)


def hours(store: Engine, *spent: tuple[int, int], replica: str = "chat-0", usd: str = "5") -> None:
    """`spent` has the busy and the idle minutes of an hour, hour by hour."""
    rows = []
    for hour, (busy, idle) in enumerate(spent):
        for at in range(busy + idle):
            what = "busy_ns" if at < busy else "idle_ns"
            rows.append(minute(replica, hour * 60 + at, usd, what))
    write_minutes(store, rows)


def minute(replica: str, at: int, usd: str, what: str) -> dict[str, object]:
    none = dict.fromkeys(("busy_ns", "idle_ns", "loading_ns", "draining_ns"), 0)
    own = {"replica": replica, "minute": at, "model": "chat", "usd_per_hour": Decimal(usd)}
    return {**own, **none, what: MINUTE_NS}


@pytest.mark.proves("S192")
def test_480_dollars_for_360_thousand_requests_are_1_33_a_thousand_with_a_floor_of_0_28(
    sqlite_url: str,
) -> None:
    """The claim's own day: four replicas at $5 an hour, 5 requests a second when busy.

    Its 360,000 requests, a thousandth of them, and so of the money: the prices are the same.
    """
    store = open_store(sqlite_url)
    for at in range(4):
        # 20 of the 96 hours busy: what 360,000 requests at 18,000 an hour take.
        hours(store, *[(60, 0)] * 5, *[(0, 60)] * 19, replica=f"chat-{at}", usd="0.005")
    for at in range(360):
        add(store, "search", replica=f"chat-{at % 4}")
    found = report(store, DAY)
    floor, actual = prices(found.whole)["per_1k_requests"]
    assert found.bill_usd == Decimal("0.480")
    assert round(actual, 2) == Decimal("1.33")
    assert round(floor, 2) == Decimal("0.28")
    assert found.busy_share == pytest.approx(0.2083, abs=1e-4)
    assert binds(found) == "idle"
    store.dispose()


def test_a_bill_by_tenant_with_its_own_lines_for_what_nobody_used(store: Engine) -> None:
    hours(store, (30, 30))
    write_minutes(store, [minute("chat-0", 100, "5", "loading_ns")])
    write_minutes(store, [minute("chat-0", 101, "5", "draining_ns")])
    add(store, "search", (1000, 0, 100))
    add(store, "search", (1000, 0, 100))
    add(store, "batch", (1000, 0, 100))
    found = report(store, DAY, ["tenant"])
    floors = {line.usage.of: line.floor_usd for line in found.lines}
    assert floors[("search",)] == pytest.approx(2 * floors[("batch",)])
    assert sum(floors.values()) == pytest.approx(Decimal("2.5"), abs=Decimal("1e-6"))
    parts = (found.unsettled_usd, found.idle_usd, found.loading_usd, found.drained_usd)
    assert found.floor_usd + sum(parts) == found.bill_usd
    assert found.bill_usd == round(Decimal(5) / 60 * 62, 9)
    assert sum(line.actual_usd for line in found.lines) == pytest.approx(found.bill_usd)
    assert found.lines[1].usage.charged_usd == Decimal("0.002")


def test_sums_in_the_database_are_the_work_of_each_request(sqlite_url: str) -> None:
    store = open_store(sqlite_url)
    hours(store, (60, 0))
    asked = {"a": [(1000, 900, 5), (10, 20, 300)], "b": [(123, 45, 67)]}
    for tenant, some in asked.items():
        for tokens in some:
            add(store, tenant, tokens)
    found = report(store, DAY, ["tenant"], like={"": "llama-3.1-8b@h100-sxm"})
    works = {
        (tenant, str(at)): attribution.work(*one)
        for tenant, some in asked.items()
        for at, one in enumerate(some)
    }
    one_hour = [attribution.Hours(5 * 10**9, HOUR_NS)]
    step, source = step_time_of("llama-3.1-8b@h100-sxm")
    bill = attribution.attribute(one_hour, works, rates(step, 1.0, source))
    for line in found.lines:
        own = sum(share.busy for use, share in bill.uses.items() if use[0] == line.usage.of[0])
        assert abs(line.floor_usd * 10**9 - own) <= 4
    store.dispose()


def test_a_replica_without_a_price_and_one_without_hours_are_named_and_cost_nothing(
    store: Engine,
) -> None:
    hours(store, (60, 0), usd="0")
    add(store, "search")
    add(store, "search", replica="gone")
    found = report(store, DAY)
    assert found.unpriced == ("chat-0",)
    assert (found.bill_usd, found.floor_usd, found.busy_share) == (0, 0, None)
    assert found.requests == 2


def test_an_empty_ledger_costs_nothing(store: Engine) -> None:
    found = report(store, DAY)
    assert (found.lines, found.bill_usd, found.requests) == ((), 0, 0)
    assert lines_of_bill(found)[-1] == ("total", 0)
    assert Decimal(as_data(found)["bill_usd"]) == 0


def test_what_is_nothing_to_group_by_is_said(store: Engine) -> None:
    with pytest.raises(SpecError, match="nothing to group by"):
        report(store, DAY, ["colour"])
    with pytest.raises(SpecError, match="ends before"):
        Period(5, 5)


def test_step_times_of_an_unknown_machine_are_an_error(sqlite_url: str) -> None:
    store = open_store(sqlite_url)
    add(store, "search")
    with pytest.raises(SpecError, match="MODEL@ACCELERATOR"):
        report(store, DAY, like={"chat": "llama-3.1-8b@abacus"})
    store.dispose()


AMOUNTS = st.integers(0, 5_000)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), AMOUNTS, AMOUNTS, AMOUNTS), max_size=6),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), max_size=3),
    st.decimals("0", "99", places=9),
)
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_printed_lines_add_up_to_the_printed_bill(
    asked: list[tuple[str, int, int, int]], spent: list[tuple[int, int]], usd: Decimal
) -> None:
    store = open_store("sqlite:///:memory:")
    hours(store, *spent, usd=str(usd))
    for tenant, *tokens in asked:
        add(store, tenant, tuple(tokens))
    found = report(store, DAY, ["tenant"])
    parts = (found.unsettled_usd, found.idle_usd, found.loading_usd, found.drained_usd)
    assert found.floor_usd + sum(parts) == found.bill_usd
    *lines, (_, total) = lines_of_bill(found)
    assert sum(amount for _, amount in lines) == total
    assert all(amount >= 0 for _, amount in lines)
    store.dispose()
