from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.gateway.ledger_rows import (
    Attempt,
    Decision,
    Entry,
    Reservation,
    attempts_of,
    attempts_text,
    nano,
    price_of,
    price_text,
    usd,
)
from ridgeline.serving.policy.price import Price
from ridgeline.store.tables import decisions, entries, reservations

prices = st.decimals(0, 10**9, places=9)


@given(st.integers(0, 9 * 10**18))
def test_money_is_exact_both_ways(amount_nano: int) -> None:
    assert nano(usd(amount_nano)) == amount_nano


@given(st.builds(Price, prices, prices, prices))
def test_a_price_is_kept_as_it_was(price: Price) -> None:
    assert price_of(price_text(price)) == price


def test_attempts_are_kept_in_order() -> None:
    attempts = [Attempt("req-1", "a"), Attempt("req-1~2", "b")]
    assert attempts_of(attempts_text(attempts)) == attempts
    assert attempts_of("[]") == []


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        (Reservation, [column.name for column in reservations.c]),
        (Entry, [column.name for column in entries.c][1:]),
        (Decision, [column.name for column in decisions.c]),
    ],
)
def test_rows_are_in_the_order_of_their_columns(
    row: type[Reservation] | type[Entry] | type[Decision], columns: list[str]
) -> None:
    assert ["usd" if name == "nano_usd" else name for name in row._fields] == columns


def test_a_reservation_knows_what_it_holds_and_where_it_counts() -> None:
    row = Reservation("req-1", "w", "acme", "k1", "m", "chat", 5, 6, 7, "")
    assert row.subjects == ("tenant:acme", "key:k1")
    assert row.held.usd == Decimal("7e-9")
