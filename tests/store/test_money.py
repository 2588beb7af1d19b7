"""Money is exact in every database."""

from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import Engine, insert, select
from sqlalchemy.exc import StatementError

from ridgeline.store.database import reading, writing
from ridgeline.store.tables import replica_minutes as table

KEPT = {"minute": 0, "model": "m", "busy_ns": 0, "idle_ns": 0, "loading_ns": 0, "draining_ns": 0}


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(-(2**63), 2**63 - 1))
def test_every_nano_dollar_comes_back(store: Engine, nano: int):
    usd = nano * Decimal("1e-9")
    with writing(store) as connection:
        connection.execute(table.delete())
        connection.execute(insert(table).values(replica="r", usd_per_hour=usd, **KEPT))
        assert connection.execute(select(table.c.usd_per_hour)).scalar_one() == usd


def test_finer_than_a_nano_dollar_is_refused_not_rounded(store: Engine):
    def write() -> None:
        with writing(store) as connection:
            usd = Decimal("1e-10")
            connection.execute(insert(table).values(replica="r", usd_per_hour=usd, **KEPT))

    with pytest.raises(StatementError, match="finer than a nano-dollar"):
        write()
    with reading(store) as connection:
        assert connection.execute(select(table)).all() == []
