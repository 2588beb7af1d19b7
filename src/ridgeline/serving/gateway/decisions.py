"""Why a request went where it went, read back from the database."""

import json
from typing import Any

from sqlalchemy import Engine, select

from ridgeline.store.database import reading
from ridgeline.store.tables import decisions, entries


def decision(store: Engine, request_id: str, *, tenant: str | None = None) -> dict[str, Any] | None:
    """What was decided for a request, with what it was charged; None where nothing is on record.

    `request_id` is the gateway's or the client's own (then the latest). With `tenant`, only its.
    """
    with reading(store) as connection:
        own = decisions.c.request_id == request_id
        # JSON as text: a client's id is looked for in it where no request has it as its own.
        as_text = json.dumps(request_id)
        theirs = decisions.c.detail.contains(f'"client_id":{as_text}', autoescape=True)
        row = None
        for condition in (own, theirs):
            asked = select(decisions).where(condition).order_by(decisions.c.at_ns.desc()).limit(1)
            if tenant is not None:
                asked = asked.where(decisions.c.tenant == tenant)
            row = row or connection.execute(asked).one_or_none()
        if row is None:
            return None
        charged = connection.execute(
            select(entries).where(entries.c.request_id == row.request_id)
        ).one_or_none()
    found: dict[str, Any] = {
        "request_id": row.request_id,
        "tenant": row.tenant,
        "at_unix_s": row.at_ns / 1e9,
        **json.loads(row.detail),
    }
    if charged is not None:
        found["charge"] = {
            "usd": format(charged.usd, "f"),
            "input_tokens": charged.input_tokens,
            "cached_tokens": charged.cached_tokens,
            "output_tokens": charged.output_tokens,
            "basis": charged.basis,
        }
    return found
