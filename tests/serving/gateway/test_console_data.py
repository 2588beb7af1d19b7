"""What the console reads from the database, on each kind of it."""

import json
from collections.abc import Iterator
from decimal import Decimal
from itertools import count

import msgspec
import pytest
from sqlalchemy import Engine

from ridgeline.serving.gateway import console_data
from ridgeline.serving.gateway.console_data import (
    ConsoleData,
    Fill,
    cost_view,
    fills,
    routing_view,
    tenants_view,
)
from ridgeline.serving.gateway.ledger_batch import Calendar
from ridgeline.serving.gateway.replica_time import write_minutes
from ridgeline.serving.gateway.tenants import Tenants
from ridgeline.serving.gateway.usage import MINUTE_NS
from ridgeline.serving.policy.limits import Account, Limits, Use, reserve, settle
from ridgeline.serving.policy.periods import period
from ridgeline.serving.tenant_spec import BudgetSpec, LimitsSpec, TenantSpec
from ridgeline.store.database import open_store, writing
from ridgeline.store.tables import accounts, decisions, entries, reservations

DAY_NS = 86_400 * 10**9
NOW_NS = 20_000 * DAY_NS + 12 * 3_600 * 10**9  # noon in UTC
NUMBERS = count(1)


@pytest.fixture
def store(store_url: str) -> Iterator[Engine]:
    engine = open_store(store_url)
    yield engine
    engine.dispose()


def entry(store: Engine, tenant: str, **other: object) -> None:
    row = {
        "request_id": f"req-{next(NUMBERS)}",
        "tenant": tenant,
        "key_id": "key-1",
        "model": "chat",
        "endpoint": "/v1/chat/completions",
        "replica": "chat-0",
        "status": 200,
        "input_tokens": 100,
        "cached_tokens": 40,
        "output_tokens": 10,
        "usd": Decimal("0.25"),
        "basis": "usage",
        "began_ns": NOW_NS - 10**9,
        "ended_ns": NOW_NS,
    }
    with writing(store) as connection:
        connection.execute(entries.insert(), {**row, **other})


def tenant(store: Engine, name: str, **limits: object) -> None:
    Tenants(store).create(TenantSpec(name=name, limits=LimitsSpec(**limits)), actor="test")


def state(store: Engine, name: str, account: Account) -> None:
    row = {"subject": f"tenant:{name}", "state": msgspec.json.encode(account).decode()}
    with writing(store) as connection:
        connection.execute(accounts.insert(), row)


def seen(store: Engine, now_ns: int = NOW_NS) -> dict[str, console_data.TenantUse]:
    return {one.name: one for one in tenants_view(store, Calendar(), now_ns).tenants}


def test_a_tenants_day_is_summed_and_yesterday_is_not_in_it(store: Engine) -> None:
    tenant(store, "a")
    entry(store, "a")
    entry(store, "a", input_tokens=7, cached_tokens=0)
    entry(store, "a", began_ns=NOW_NS - 13 * 3_600 * 10**9)
    one = seen(store)["a"]
    assert (one.requests, one.input_tokens, one.cached_tokens, one.output_tokens) == (
        2,
        107,
        40,
        20,
    )
    assert one.charged_usd == Decimal("0.5")
    assert (one.priority_class, one.limits, one.budget) == ("default", (), None)


def test_who_is_no_tenant_on_record_but_asked_is_shown_without_class(store: Engine) -> None:
    entry(store, "default")
    one = seen(store)["default"]
    assert (one.priority_class, one.weight, one.requests) == (None, None, 1)


def test_a_limit_is_as_full_as_the_policy_counts_it() -> None:
    limits = Limits(60, 1000, 500, 4)
    most, began_ns = Use(300, 200), NOW_NS - 5 * 10**9
    for _ in range(2):
        decision = reserve(Account(), limits, most, began_ns)
    account = decision.account
    assert fills(account, limits, NOW_NS) == (
        Fill("requests_per_minute", 1, 0, 60),
        Fill("input_tokens_per_minute", 300, 0, 1000),
        Fill("output_tokens_per_minute", 0, 200, 500),
        Fill("concurrent", 1, 0, 4),
    )
    account = settle(account, most, began_ns, Use(310, 50), NOW_NS)
    later_ns = NOW_NS + 58 * 10**9  # what was let in has left the window, what was said has not
    assert [fill.used for fill in fills(account, limits, later_ns)] == [0, 0, 50, 0]


def test_only_limits_that_there_are_have_a_fill() -> None:
    assert fills(Account(), Limits(), NOW_NS) == ()


def test_a_budget_is_left_by_the_account(store: Engine) -> None:
    tenant(store, "a", budget=BudgetSpec(usd=Decimal(10), per="day", timezone="Europe/Berlin"))
    today = period("day", "Europe/Berlin", NOW_NS)
    state(store, "a", Account(period=today, held_usd=Decimal("1.5"), spent_usd=Decimal(2), open=3))
    one = seen(store)["a"]
    assert one.budget is not None
    assert (one.running, one.budget.spent_usd, one.budget.held_usd) == (3, 2, Decimal("1.5"))
    assert one.budget.left_usd == Decimal("6.5")
    assert one.budget.ends_unix_s == today.end_ns / 1e9


def test_a_budget_that_nobody_counted_yet_in_its_period_is_added_up(store: Engine) -> None:
    tenant(store, "a", budget=BudgetSpec(usd=Decimal(10), per="month"))
    state(
        store,
        "a",
        Account(period=period("month", "UTC", NOW_NS - 40 * DAY_NS), spent_usd=Decimal(9)),
    )
    entry(store, "a", began_ns=NOW_NS - DAY_NS)
    running = {"worker": "w", "endpoint": "/", "price": "{}", "key_id": "key-1", "model": "chat"}
    row = {"request_id": "req-x", "tenant": "a", "input_tokens": 1, "output_tokens": 1}
    with writing(store) as connection:
        held = {"usd": Decimal("0.75"), "began_ns": NOW_NS - 1}
        connection.execute(reservations.insert(), {**running, **row, **held})
    left = seen(store)["a"].budget
    assert left is not None
    assert (left.spent_usd, left.held_usd) == (Decimal("0.25"), Decimal("0.75"))
    assert left.left_usd == 9


def test_a_disabled_tenant_says_so(store: Engine) -> None:
    tenant(store, "a")
    Tenants(store).disable("a", actor="test")
    assert seen(store)["a"].disabled


def test_what_is_left_out_is_counted(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_data, "MOST_TENANTS", 3)
    for name in ("a", "b"):
        tenant(store, name)
    for name in ("x", "y"):
        entry(store, name)
    view = tenants_view(store, Calendar(), NOW_NS)
    assert ([one.name for one in view.tenants], view.left_out) == (["a", "b", "x"], 1)
    tenant(store, "c")
    tenant(store, "d")
    view = tenants_view(store, Calendar(), NOW_NS)
    assert ([one.name for one in view.tenants], view.left_out) == (["a", "b", "c"], 1)


def decided(
    store: Engine, name: str, replica: str = "r0", warm: int = 0, at_ns: int = NOW_NS, **other
) -> None:
    scores = [
        {"replica": one, "load": 2, "warm_tokens": warm if one == replica else 0, "cost": cost}
        for cost, one in enumerate((f"r{number}" for number in range(12)), 1)
    ]
    attempt = {
        "view": {"request": {"input_tokens": 100}, "replicas": [{"id": "r0"}], "now_ns": 1},
        "route": {"replica": replica, "reason": "it is warm", "scores": scores},
    }
    detail = {
        "model": "chat",
        "rule": "prefix-sticky",
        "status": 200,
        "split_s": {"queue": 0.25, "prefill": 1.0},
        "decisions": [attempt],
        **other,
    }
    row = {"request_id": name, "tenant": "a", "at_ns": at_ns, "detail": json.dumps(detail)}
    with writing(store) as connection:
        connection.execute(decisions.insert(), row)


def test_the_newest_decisions_come_first_and_the_chosen_replica_before_the_cheaper(
    store: Engine,
) -> None:
    decided(store, "req-1", at_ns=NOW_NS - 2)
    decided(store, "req-2", replica="r11")
    view = routing_view(store, NOW_NS)
    assert [one.request_id for one in view.decisions] == ["req-2", "req-1"]
    one = view.decisions[0]
    assert (one.replica, one.reason, one.e2e_s, one.attempts) == ("r11", "it is warm", 1.25, 1)
    assert [score.replica for score in one.scores] == ["r11", *(f"r{n}" for n in range(7))]
    assert one.candidates == 12


def test_of_several_attempts_the_last_is_shown(store: Engine) -> None:
    def attempt(replica: str) -> dict[str, object]:
        return {"view": {"request": {"input_tokens": 5}}, "route": {"replica": replica}}

    decided(store, "req-1", decisions=[attempt("r0"), attempt("r1")])
    one = routing_view(store, NOW_NS).decisions[0]
    assert (one.replica, one.attempts) == ("r1", 2)


def test_warmth_is_what_routing_believed_and_what_the_replica_counted(store: Engine) -> None:
    decided(store, "req-1", warm=80)
    decided(store, "req-2", warm=40)
    decided(store, "req-3", replica="r1")
    entry(store, "a", replica="r0")
    entry(store, "a", replica="r1", cached_tokens=0)
    entry(store, "a", replica="r0", cached_tokens=100, began_ns=NOW_NS - 12 * MINUTE_NS)
    warmth = routing_view(store, NOW_NS).replicas
    assert (warmth["r0"].warm_share, warmth["r0"].cached_share) == (0.6, 0.4)
    assert (warmth["r1"].warm_share, warmth["r1"].cached_share) == (0.0, None)


def test_what_was_never_routed_is_no_decision(store: Engine) -> None:
    decided(store, "req-1", decisions=[])
    view = routing_view(store, NOW_NS)
    assert (view.decisions, view.of_decisions) == ((), 0)


def minute(store: Engine, at_ns: int, **spent: int) -> None:
    none = dict.fromkeys(("busy_ns", "idle_ns", "loading_ns", "draining_ns"), 0)
    row = {"replica": "chat-0", "model": "chat", "usd_per_hour": Decimal(6), **none, **spent}
    write_minutes(store, [{**row, "minute": at_ns // MINUTE_NS}])


def test_a_cost_ends_with_the_last_minute_on_record(store: Engine) -> None:
    minute(store, NOW_NS - 3 * MINUTE_NS, busy_ns=MINUTE_NS)
    minute(store, NOW_NS - 2 * MINUTE_NS, idle_ns=MINUTE_NS)
    entry(store, "a", began_ns=NOW_NS - 3 * MINUTE_NS)
    entry(store, "b", began_ns=NOW_NS)  # its seconds are not there yet
    found = cost_view(store, 24, NOW_NS)
    assert [line["tenant"] for line in found["lines"]] == ["a"]
    assert Decimal(found["bill_usd"]) == Decimal("0.2")
    assert Decimal(found["floor_usd"]) + Decimal(found["idle_usd"]) == Decimal("0.2")
    assert float(found["floor_usd"]) == pytest.approx(0.1)
    prices = found["whole"]["per_1k_requests"]
    assert [float(prices[name]) for name in ("floor_usd", "actual_usd")] == pytest.approx(
        [100, 200]
    )


def test_a_cost_of_nothing_has_no_prices(store: Engine) -> None:
    found = cost_view(store, 1, NOW_NS)
    assert found["whole"]["per_1k_requests"] == {"floor_usd": None, "actual_usd": None}
    assert (found["lines"], found["left_out"]) == ([], 0)


def test_the_dearest_lines_are_kept(store: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_data, "MOST_LINES", 1)
    minute(store, NOW_NS, busy_ns=MINUTE_NS)
    entry(store, "a")
    entry(store, "b", output_tokens=1000)
    found = cost_view(store, 1, NOW_NS + MINUTE_NS)
    assert ([line["tenant"] for line in found["lines"]], found["left_out"]) == (["b"], 1)


async def test_answers_are_json_and_an_unknown_request_has_none(store: Engine) -> None:
    tenant(store, "a")
    decided(store, "req-1")
    data = ConsoleData(store, lambda: NOW_NS)
    assert json.loads(await data.tenants())["tenants"][0]["charged_usd"] == "0"
    assert json.loads(await data.routing())["of_decisions"] == 1
    assert json.loads(await data.cost(24))["hours"] == 24
    found = await data.why("req-1")
    assert found is not None
    assert found["decisions"][0]["route"]["replica"] == "r0"
    assert await data.why("req-2") is None
    await data.close()
