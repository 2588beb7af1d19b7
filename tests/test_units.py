import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.errors import UnitError
from ridgeline.quantity import given as quantity
from ridgeline.show import show
from ridgeline.units import parse_bytes, parse_number, parse_seconds, parse_unit


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1GB", 10**9),
        ("1 GiB", 2**30),
        ("1.5kib", 1536),
        ("12", 12),
        (12, 12),
        ("2e3 MB", 2 * 10**9),
        (".5kB", 500),
    ],
)
def test_sizes_tell_decimal_from_binary(text, wanted):
    assert parse_bytes(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"), [("500ms", 0.5), ("2s", 2), ("10m", 600), ("1h", 3600), ("5 us", 5e-6)]
)
def test_durations_become_seconds(text, wanted):
    assert parse_seconds(text) == pytest.approx(wanted)


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "1 parsec", "1e999GB", "nan", "1GB1", True])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ValueError, match="is not a size"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["5", "", "ms", "-1s", "1e999s", "1 fortnight"])
def test_a_duration_needs_its_unit(text):
    with pytest.raises(ValueError, match="is not a duration"):
        parse_seconds(text)


@given(st.integers(0, 10**18))
def test_a_plain_number_of_bytes_is_itself_up_to_a_floats_precision(number):
    assert parse_bytes(number) == pytest.approx(number, rel=1e-15)


@pytest.mark.parametrize(
    ("text", "unit", "wanted"),
    [
        ("70b", "", 70e9),
        ("70B", "params", 70e9),
        ("15t", "tokens", 15e12),
        ("80b", "B", 10),
        ("$3.5/h", "USD/h", 3.5 / 3600),
        ("3.5 USD/h", "USD/h", 3.5 / 3600),
        ("$ 2.5 / h", "USD/h", 2.5 / 3600),
        ("$2M", "USD", 2e6),
        ("30/s", "tokens/s", 30),
        ("30 tokens/s", "tokens/s", 30),
        ("3/s", "1/s", 3),
    ],
)
def test_a_number_is_read_as_people_write_it(text, unit, wanted):
    assert parse_number(text, parse_unit(unit).dimension)[0] == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("text", "unit", "remedy"),
    [("many", "", "70B"), ("30", "tokens/s", "30/s"), ("3", "USD/h", "USD/h")],
)
def test_a_number_that_is_none_is_refused_with_one_that_would_do(text, unit, remedy):
    with pytest.raises(UnitError) as caught:
        parse_number(text, parse_unit(unit).dimension)
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("136 s", "136 s"),
        ("600 s", "10 min"),
        ("90000 s", "25 h"),
        ("100000 s", "27.78 h"),
        ("400000 s", "4.63 days"),
        ("15e12 token", "15 T tokens"),
        ("1048576 token", "1,048,576 tokens"),
        ("7.142857e27 nodes", "7.143e27 nodes"),
    ],
)
def test_a_number_is_shown_so_that_it_can_be_read(written, shown):
    assert show(quantity(written)) == shown


@pytest.mark.parametrize("written", ["e308 h", "s^:", "s^1e999999", "s^99", "^"])
def test_what_is_no_unit_is_refused_and_not_a_crash(written):
    with pytest.raises(UnitError):
        parse_number(f"5{written}", parse_unit("s").dimension)
