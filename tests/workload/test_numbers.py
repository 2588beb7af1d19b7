"""Numbers from files."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.workload.numbers import MOST_S, MOST_TOKENS, name, seconds, tokens


@pytest.mark.parametrize(
    ("value", "read"), [(374, 374), ("374", 374), (374.0, 374), (" 9 ", 9), (0, 0)]
)
def test_whole_numbers_are_read_however_they_are_written(value, read):
    assert tokens(value) == read


@pytest.mark.parametrize(
    "value",
    [-1, "-1", 1.5, "nan", float("inf"), True, None, [], "", "many", MOST_TOKENS + 1, 10**400,
     "9" * 5000],
)  # fmt: skip
def test_what_is_no_number_of_tokens_is_refused_and_named_in_few_letters(value):
    with pytest.raises(ValueError, match=r"number|between") as error:
        tokens(value)
    assert len(str(error.value)) < 120


@pytest.mark.parametrize("value", ["nan", "inf", 1e300, 10**400, None, False, "noon"])
def test_what_is_no_time_is_refused(value):
    with pytest.raises(ValueError, match=r"no time|no number"):
        seconds(value)


@given(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary()))
def test_anything_is_a_number_within_bounds_or_a_value_error(value):
    for read, least, most in ((tokens, 0, MOST_TOKENS), (seconds, -MOST_S, MOST_S)):
        try:
            assert least <= read(value) <= most
        except ValueError:
            continue


def test_names_are_short_texts_or_numbers():
    assert (name(None), name("search"), name(7)) == ("", "search", "7")
    for wrong in ("x" * 201, [], {}, 1.5):
        with pytest.raises(ValueError, match="no name"):
            name(wrong)
