import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.units import parse_bytes, parse_seconds


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
