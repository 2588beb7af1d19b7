"""A replica's bill, shared: nothing is lost, nobody gets money back."""

from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.attribution import (
    NS_PER_HOUR,
    Bill,
    Hours,
    Rates,
    Share,
    Work,
    attribute,
    seconds,
    work,
)

RATES = Rates(prompt_s=1e-4, attended_s=1e-9, output_s=5e-3, cached_s=1e-7, source="a test")
SPANS = st.integers(0, 40 * NS_PER_HOUR)
HOURS = st.builds(Hours, st.integers(0, 10**13), SPANS, SPANS, SPANS, SPANS)
AMOUNTS = st.floats(0, 1e15)
USES = st.dictionaries(
    st.tuples(st.text(max_size=2)), st.builds(Work, AMOUNTS, AMOUNTS, AMOUNTS, AMOUNTS), max_size=9
)
COSTS = st.floats(0, 1)
ANY_RATES = st.builds(Rates, COSTS, COSTS, COSTS, COSTS, st.just("any"))


def lines_of(bill: Bill) -> list[int]:
    shares = [part for share in bill.uses.values() for part in (share.prefill, share.decode)]
    return [*shares, bill.unsettled, bill.idle, bill.loading, bill.drained]


@given(st.lists(HOURS, max_size=4), USES, ANY_RATES)
def test_the_lines_are_the_bill_and_none_is_negative(
    hours: list[Hours], uses: dict[tuple[str, ...], Work], rates: Rates
) -> None:
    bill = attribute(hours, uses, rates)
    exact = sum(Decimal(one.nano_usd_per_hour) * one.paid_ns / NS_PER_HOUR for one in hours)
    assert sum(lines_of(bill)) == bill.lines == bill.total
    assert abs(bill.total - exact) <= Decimal("0.500001")
    assert min(lines_of(bill), default=0) >= 0
    assert set(bill.uses) == set(uses)


@given(HOURS, USES, ANY_RATES)
def test_idle_takes_at_most_the_rounding_of_each_line_beyond_its_own(
    hours: Hours, uses: dict[tuple[str, ...], Work], rates: Rates
) -> None:
    bill = attribute([hours], uses, rates)
    own = hours.nano_usd_per_hour * hours.idle_ns // NS_PER_HOUR
    assert 0 <= bill.idle - own <= 2 * len(uses) + 4


@given(HOURS, USES, ANY_RATES)
def test_whoever_works_more_never_pays_less(
    hours: Hours, uses: dict[tuple[str, ...], Work], rates: Rates
) -> None:
    bill = attribute([hours], uses, rates)
    spent = {use: sum(seconds(done, rates)) for use, done in uses.items()}
    ordered = sorted(uses, key=spent.__getitem__)
    paid = [bill.uses[use].busy for use in ordered]
    # Each half is rounded down by itself, so equal work may differ by a nano-dollar.
    assert all(less <= more + 1 for less, more in pairwise(paid))


def test_busy_seconds_go_by_prefill_and_decode_seconds_of_the_model() -> None:
    hours = Hours(3_600 * 10**9, busy_ns=10 * 10**9, idle_ns=5 * 10**9)  # $1 a second
    uses = {("reads",): Work(30_000, 0, 0, 0), ("writes",): Work(0, 0, 200, 0)}
    bill = attribute([hours], uses, RATES)  # 3 s of prompts, 1 s of answers
    assert bill.uses == {
        ("reads",): Share(7_500_000_000, 0),
        ("writes",): Share(0, 2_500_000_000),
    }
    assert (bill.unsettled, bill.idle, bill.total) == (0, 5 * 10**9, 15 * 10**9)


def test_what_was_busy_without_an_entry_is_told_apart_from_idle() -> None:
    bill = attribute([Hours(3_600 * 10**9, busy_ns=7 * 10**9, idle_ns=10**9)], {}, RATES)
    assert (bill.unsettled, bill.idle) == (7 * 10**9, 10**9)


def test_a_price_that_changed_is_paid_for_the_hours_it_held() -> None:
    bill = attribute([Hours(10**9, NS_PER_HOUR), Hours(2 * 10**9, NS_PER_HOUR)], {}, RATES)
    assert bill.total == 3 * 10**9


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ((100, 0, 10), Work(100, 100 * 50, 10, 10 * 105)),
        ((100, 60, 10), Work(40, 40 * 80, 10, 10 * 105)),
        ((100, 100, 0), Work(0, 0, 0, 0)),
        ((100, 999, 1), Work(0, 0, 1, 100.5)),  # more cached than there was: the prompt
        ((0, 0, 0), Work(0, 0, 0, 0)),
    ],
)
def test_the_work_of_one_request(tokens: tuple[int, int, int], expected: Work) -> None:
    assert work(*tokens) == expected
