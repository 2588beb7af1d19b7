"""Entries of a ledger, written as if requests had been settled."""

from decimal import Decimal
from itertools import count

from sqlalchemy import Engine

from ridgeline.serving.gateway.usage import MINUTE_NS
from ridgeline.store.tables import entries

NUMBERS = count(1)


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
