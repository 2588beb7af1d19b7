"""Levers that lower cost: the same baseline for each, one cost for each set, in any order."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.catalog.accelerators import accelerator
from ridgeline.catalog.models import model
from ridgeline.platform.plan import topics
from ridgeline.quantity import given as number
from ridgeline.serving.plan.levers import LEVERS, Fleet
from ridgeline.topics import ask

topics()


def fleet(**changes: object) -> Fleet:
    fields: dict[str, object] = {
        "model": model("llama-3.1-8b"),
        "chips": (accelerator("h100-sxm"), accelerator("mi300x")),
        "prices": (number("2.5 USD/h"), number("2 USD/h")),
        "batches": (number(16), number(64)),
        "dtypes": ("bf16", "fp8"),
        "floors": (number(12), number(2)),
        "context_tokens": number("4096 tokens"),
        "peak_tokens_per_s": number("40000 tokens/s"),
        "trough_share": number(0.2),
        "peak_share": number(0.33),
        "memory_share": number(0.9),
        "committed": number(0.5),
        "commitment_discount": number(0.4),
        "spot": number(0.5),
        "spot_discount": number(0.6),
        "spot_waste": number(0.1),
    }
    return Fleet(**(fields | changes))


def cost(of: Fleet, pulled: object) -> float:
    return float(of.usd_per_s(frozenset(pulled)).value)


@pytest.mark.proves("S193")
def test_each_saving_is_from_the_same_baseline_and_all_orders_compose_to_the_same_cost():
    asked = ask("cost-levers", {"price": "2.5 USD/h", "other_price": "2 USD/h"})
    one = fleet()
    base = cost(one, ())
    for pulled in subsets():
        assert cost(one, pulled) == pytest.approx(by_hand(pulled)), pulled
    for row in asked.answer.table:
        alone = 1 - cost(one, {row["lever"]}) / base
        assert row["saves_alone"].value == pytest.approx(alone)
    saved = [row["saves_alone"].value for row in asked.answer.table]
    assert saved == sorted(saved, reverse=True)
    assert {row["lever"] for row in asked.answer.table} == set(LEVERS)

    together = cost(one, LEVERS)
    known = {pulled: cost(one, pulled) for pulled in subsets()}
    for order in itertools.permutations(LEVERS):
        path = base
        for index in range(len(order)):
            before, after = known[frozenset(order[:index])], known[frozenset(order[: index + 1])]
            path *= after / before
        assert path == pytest.approx(together)
    product = 1.0
    for row in asked.answer.table:  # the path that is printed
        product *= 1 - row["saves_here"].value
    assert base * product == pytest.approx(together)
    assert asked.answer.values["all_usd_per_s"].value == pytest.approx(together)
    # Adding the savings up would promise more than everything.
    assert asked.answer.values["summed_alone"].value > 1 > asked.answer.values["saved"].value


def by_hand(pulled: frozenset[str]) -> float:
    """Dollars a second of the default fleet, written out; reads bind, one device holds it all."""
    chip = accelerator("mi300x" if "card" in pulled else "h100-sxm")
    price = 2.0 if "card" in pulled else 2.5
    batch = 64 if "batch" in pulled else 16
    params, cache = 8_030_261_248, 2 * 32 * 8 * 128 * 2 * 4096  # K and V, layers, heads, width
    read = params * (1 if "precision" in pulled else 2) + batch * cache
    rate = batch * chip.memory_bytes_per_s.value / read
    floor = 2 if "floor" in pulled else 12
    peak, trough = max(40_000 / rate, floor), max(0.2 * 40_000 / rate, floor)
    paid = 1.0
    if "spot" in pulled:
        paid = 0.5 * 0.4 / 0.9 + 0.5
    if "commitment" in pulled:
        paid = 0.5 * 0.6 + 0.5 * paid
    return (0.33 * peak + 0.67 * trough) * price / 3600 * paid


def subsets() -> list[frozenset[str]]:
    return [
        frozenset(chosen)
        for size in range(len(LEVERS) + 1)
        for chosen in itertools.combinations(LEVERS, size)
    ]


@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 0.95), st.floats(0, 0.95))
def test_no_hour_is_discounted_twice(held: float, bid: float, less: float, spot_less: float):
    one = fleet(
        committed=number(held),
        spot=number(bid),
        commitment_discount=number(less),
        spot_discount=number(spot_less),
        spot_waste=number(0),
    )
    ratio = cost(one, {"commitment", "spot"}) / cost(one, ())
    expected = held * (1 - less) + (1 - held) * (bid * (1 - spot_less) + 1 - bid)
    assert ratio == pytest.approx(expected)
    assert ratio >= min(1 - less, 1 - spot_less) - 1e-9


def test_a_floor_that_binds_hides_what_a_faster_replica_saves():
    bound, free = fleet(floors=(number(50), number(0))), fleet(floors=(number(0), number(0)))
    for lever in ("batch", "precision"):
        assert cost(bound, {lever}) == pytest.approx(cost(bound, ()))
        assert cost(free, {lever}) < 0.9 * cost(free, ())


def test_a_model_that_needs_more_devices_pays_for_them_and_a_narrower_type_needs_fewer():
    one = fleet(model=model("llama-3.1-70b"), floors=(number(1000), number(0)))
    per_replica = cost(one, ()) / 1000 * 3600  # the floor binds: its replicas at 2.50 USD/h
    assert per_replica / 2.5 == pytest.approx(3)  # 141 GB and 16 caches in cards of 77 GB
    assert cost(one, {"precision"}) / cost(one, ()) == pytest.approx(2 / 3)


def test_batch_and_precision_overlap_since_they_shorten_the_same_step():
    one = fleet(floors=(number(0), number(0)))
    base = cost(one, ())
    both = cost(one, {"batch", "precision"}) / base
    apart = cost(one, {"batch"}) * cost(one, {"precision"}) / base**2
    assert both > apart
