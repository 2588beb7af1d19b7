"""Numbers that remember: algebra as with plain numbers, units checked, choices and pasts kept."""

import math

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from ridgeline.errors import UnitError
from ridgeline.quantity import (
    Provenance,
    Quantity,
    ceil,
    choose,
    exp,
    floor,
    given,
    largest,
    log,
    log2,
    overriding,
    set_to,
    smallest,
    sqrt,
)
from ridgeline.show import exact, show
from ridgeline.units import parse_number, parse_unit

POSITIVE = st.floats(1e-3, 1e9)
UNITS = st.sampled_from(
    ["B", "GB", "GiB", "s", "ms", "FLOP", "tokens", "USD", "W", "K", "", "GPUs"]
)
SAME = st.sampled_from([("GB", "GiB"), ("ms", "h"), ("TFLOP/s", "FLOP/s"), ("Gb/s", "GB/s")])


@drawn(POSITIVE, POSITIVE, POSITIVE, SAME)
def test_addition_is_associative_and_commutative_over_units_of_one_dimension(a, b, c, units):
    x, y, z = given(a, units[0]), given(b, units[1]), given(c, units[0])
    assert ((x + y) + z).value == pytest.approx((x + (y + z)).value, rel=1e-12)
    assert (x + y).value == pytest.approx((y + x).value, rel=1e-15)
    assert (x + y - y).value == pytest.approx(x.value, rel=1e-6, abs=1e-6 * y.value)


@drawn(POSITIVE, POSITIVE, POSITIVE, UNITS, UNITS, UNITS)
def test_multiplication_is_associative_and_undone_by_division_in_value_and_unit(a, b, c, u, v, w):
    x, y, z = given(a, u), given(b, v), given(c, w)
    left, right = (x * y) * z, x * (y * z)
    assert left.value == pytest.approx(right.value, rel=1e-12)
    assert left.dimension == right.dimension
    back = x * y / y
    assert back.value == pytest.approx(x.value, rel=1e-12)
    assert back.dimension == x.dimension


@drawn(POSITIVE, POSITIVE, POSITIVE, SAME)
def test_multiplication_distributes_over_addition(a, b, c, units):
    factor, x, y = given(c, "tokens"), given(a, units[0]), given(b, units[1])
    one, other = factor * (x + y), factor * x + factor * y
    assert one.value == pytest.approx(other.value, rel=1e-12)
    assert one.dimension == other.dimension


@drawn(POSITIVE, POSITIVE)
def test_a_quantity_computes_what_plain_numbers_do(a, b):
    x, y = given(a, ""), given(b, "")
    assert (x + y).value == a + b
    assert (x - y).value == a - b
    assert (x * y).value == a * b
    assert (x / y).value == a / b
    assert (-x).value == -a
    assert abs(-x).value == a
    assert sqrt(x).value == math.sqrt(a)
    assert log(x).value == math.log(a)
    assert log2(x).value == math.log2(a)
    assert exp(x / x).value == pytest.approx(math.e)
    assert (2 * x + 1 - y / 2).value == 2 * a + 1 - b / 2


@pytest.mark.parametrize(
    ("written", "base"),
    [
        ("1 GB", 1e9), ("1 GiB", 2**30), ("8 Gb", 1e9), ("80 GB", 80e9), ("1.5 KiB", 1536),
        ("400 Gb/s", 50e9), ("900 GB/s both", 450e9), ("3.35 TB/s", 3.35e12),
        ("2.5 USD/h", 2.5 / 3600), ("1 kWh", 3.6e6), ("50 %", 0.5), ("2 h", 7200), ("10 K", 10),
    ],
)  # fmt: skip
def test_units_that_look_alike_are_told_apart(written, base):
    assert given(written).value == pytest.approx(base, rel=1e-15)


def test_a_link_in_one_direction_is_half_of_both_and_print_says_which():
    both, one = given("900 GB/s both"), given("450 GB/s")
    assert both.value == one.value
    assert show(both) == "900 GB/s both directions together"
    assert show(one) == "450 GB/s"


def test_k_is_1024_for_tokens_and_1000_for_all_else():
    assert parse_number("8k", parse_unit("token").dimension)[0] == 8192
    assert parse_number("8k", ())[0] == 8000


@pytest.mark.parametrize(
    ("action", "named"),
    [
        (lambda size, time: size + time, ("size", "time")),
        (lambda size, time: size - time, ("size", "time")),
        (lambda size, time: size < time, ("size", "time")),
        (lambda size, time: largest(a=size, b=time), ("size", "time")),
        (lambda size, time: choose(True, size, time, why="so"), ("size", "time")),
        (lambda size, time: size + 1, ("size", "plain number 1")),
        (lambda size, time: size.to("s"), ("size", "in s")),
        (lambda size, time: 2**size, ("size",)),
        (lambda size, time: exp(size), ("size",)),
        (lambda size, time: float(time), ("time",)),
        (lambda size, time: size / (time - time), ("time",)),
    ],
)
def test_a_clash_of_units_names_both_sides(action, named):
    size, time = given("2 GB", name="size"), given("3 s", name="time")
    with pytest.raises(UnitError) as caught:
        action(size, time)
    assert caught.value.remedy
    assert all(word in caught.value.problem for word in named)


def test_max_and_min_keep_the_name_of_the_branch_that_binds():
    slow, fast = given("8 ms", name="slow"), given("3 ms", name="fast")
    longest, shortest = largest(memory=fast, compute=slow), smallest(memory=fast, compute=slow)
    assert (longest.value, longest.labels[longest.chosen]) == (slow.value, "compute")
    assert (shortest.value, shortest.labels[shortest.chosen]) == (fast.value, "memory")


def test_if_keeps_its_condition_in_words_and_which_way_it_went():
    small, large = given("1 GB", name="small"), given("9 GB", name="large")
    taken = choose(small < large, small, large, why="it fits")
    assert taken.value == small.value
    assert taken.labels[taken.chosen] == "it fits"
    assert choose(small > large, small, large, why="it fits").labels[1] == "not it fits"


@drawn(st.lists(POSITIVE, min_size=2, max_size=6), st.lists(POSITIVE, min_size=2, max_size=6))
def test_an_array_is_one_element_a_point_and_each_keeps_its_own_branch(ones, others):
    size = min(len(ones), len(others))
    x = Quantity(np.array(ones[:size]), parse_unit("s"), name="x")
    y = Quantity(np.array(others[:size]), parse_unit("s"), name="y")
    longest = largest(x=x, y=y)
    for index in range(size):
        a, b = given(ones[index], "s"), given(others[index], "s")
        alone = largest(x=a, y=b)
        assert longest.value[index] == alone.value
        assert longest.chosen[index] == alone.chosen
        assert (x * 2 + y).value[index] == (a * 2 + b).value
        assert ceil(x).value[index] == ceil(a).value
        assert floor(y).value[index] == floor(b).value


@pytest.mark.parametrize("number", [3.0, 2.9999999999999996, 3.0000000000000004])
def test_a_whole_number_but_for_rounding_is_that_number(number):
    assert ceil(number) == 3
    assert floor(number) == 3


def test_a_number_walks_to_all_that_it_was_computed_from():
    memory = given("80 GB", name="h100.memory_bytes", provenance=Provenance.DATASHEET)
    share = given(0.9, "", name="share")
    usable = (memory * share).named("usable_bytes")
    assert [step.name for step in usable.walk()] == ["usable_bytes", "h100.memory_bytes", "share"]
    assert [step.provenance for step in usable.inputs] == [
        Provenance.DATASHEET,
        Provenance.GIVEN,
    ]


@pytest.mark.parametrize("name", ["h100.memory_bytes", "memory_bytes"])
def test_a_row_of_the_catalog_is_set_by_its_full_name_and_by_the_field_alone(name):
    with overriding({name: set_to("100GB")}):
        assert given("80 GB", name="h100.memory_bytes").value == 100e9
    assert given("80 GB", name="h100.memory_bytes").value == 80e9


def test_setting_one_row_leaves_the_others():
    with overriding({"h100.memory_bytes": set_to("100GB")}):
        assert given("141 GB", name="h200.memory_bytes").value == 141e9


def test_an_intermediate_can_be_set_and_remembers_what_it_replaced():
    with overriding({"usable_bytes": set_to("1 TB")}):
        usable = (given("80 GB", name="memory") * 2).named("usable_bytes")
    assert usable.value == 1e12
    assert usable.inputs == ()
    assert usable.note == "instead of 160 GB"


def test_setting_refuses_another_dimension():
    with overriding({"memory": set_to("3 s")}), pytest.raises(UnitError, match="not a number in B"):
        given("80 GB", name="memory")


@pytest.mark.parametrize(
    ("number", "unit", "shown", "told"),
    [
        (2_684_354_560, "B", "2.684 GB", "2,684,354,560 B"),
        (80e9, "B", "80 GB", ""),
        (1536, "B", "1.536 kB", ""),
        (1, "GPUs", "1 GPU", ""),
        (2, "1/token", "2/token", ""),
        (0.0123, "s", "12.3 ms", ""),
        (math.inf, "users", "unlimited users", ""),
        (math.inf, "s", "unlimited", ""),
        (1, "days", "1 day", ""),
        (270, "day", "270 days", ""),
        (2, "years", "2 years", ""),
    ],
)
def test_a_number_is_shown_with_its_unit_and_bytes_exactly_where_they_were_rounded(
    number, unit, shown, told
):
    assert show(given(number, unit)) == shown
    assert exact(given(number, unit)) == told


@pytest.mark.parametrize(
    "action", [lambda x: log(x - x), lambda x: sqrt(-x), lambda x: exp(x * 1e4)]
)
def test_what_has_no_value_is_refused_and_not_a_crash(action):
    with pytest.raises(UnitError, match="cannot take") as caught:
        action(given(3.0, ""))
    assert caught.value.remedy
