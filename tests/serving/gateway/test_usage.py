"""What was used, page by page, on each kind of database."""

from decimal import Decimal

from sqlalchemy import Engine

from entry_rows import add
from ridgeline.serving.gateway.usage import MINUTE_NS, Period, newest, usage

DAY = Period(0, 24 * 60 * MINUTE_NS)


def test_other_times_are_left_out(store: Engine) -> None:
    add(store, "early", began_ns=MINUTE_NS - 1)
    add(store, "there", began_ns=MINUTE_NS)
    add(store, "late", began_ns=2 * MINUTE_NS)
    found = usage(store, Period(MINUTE_NS, 2 * MINUTE_NS), ["tenant"])
    assert [one.of for one in found] == [("there",)]


def test_usage_goes_on_behind_the_last_group_and_keeps_to_one_tenant(store: Engine) -> None:
    for tenant in ("a", "b", "c"):
        for model in ("chat", "code"):
            add(store, tenant, model=model)
    by = ["tenant", "model"]
    first = usage(store, DAY, by, most=4)
    rest = usage(store, DAY, by, after=first[-1].of)
    assert [one.of for one in (*first, *rest)] == [
        (tenant, model) for tenant in "abc" for model in ("chat", "code")
    ]
    mine = usage(store, DAY, ["model"], only={"tenant": "b"})
    assert [(one.of, one.requests) for one in mine] == [(("chat",), 1), (("code",), 1)]
    assert mine[0].charged_usd == Decimal("0.001")


def test_pages_of_the_ledger_meet_without_gap_or_overlap(store: Engine) -> None:
    for _ in range(7):
        add(store, "search")
    add(store, "other")
    seen, before = [], None
    while True:
        page = newest(store, only={"tenant": "search"}, before_id=before, most=3)
        seen += [entry["id"] for entry in page.entries]
        if page.next_id is None:
            break
        before = page.next_id
    assert len(seen) == 7
    assert seen == sorted(set(seen), reverse=True)
