"""What was used, page by page, on each kind of database."""

from collections.abc import Iterator
from decimal import Decimal
from itertools import count

import pytest
from sqlalchemy import Engine

from ridgeline.serving.gateway.usage import MINUTE_NS, Period, newest, usage
from ridgeline.store.database import open_store
from ridgeline.store.tables import entries

DAY = Period(0, 24 * 60 * MINUTE_NS)
NUMBERS = count(1)


@pytest.fixture
def store(store_url: str) -> Iterator[Engine]:
    engine = open_store(store_url)
    yield engine
    engine.dispose()


def add(store: Engine, tenant: str, tokens: tuple[int, int, int] = (100, 0, 10), **other) -> None:
    number = next(NUMBERS)
    row = {
        "request_id": f"req-{number}",
        "tenant": tenant,
        "key_id": f"key-{tenant}",
        "model": "chat",
        "endpoint": "/v1/chat/completions",
        "replica": "chat-0",
        "status": 200,
        "input_tokens": tokens[0],
        "cached_tokens": tokens[1],
        "output_tokens": tokens[2],
        "usd": Decimal("0.001"),
        "basis": "usage",
        "began_ns": 10 * MINUTE_NS,
        "ended_ns": 10 * MINUTE_NS + 10**9,
    }
    with store.begin() as connection:
        connection.execute(entries.insert(), {**row, **other})


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
