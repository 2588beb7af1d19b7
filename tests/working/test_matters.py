import pytest

from ridgeline.topics import ask
from ridgeline.working.matters import unused


def told(pump, given, overrides=None):
    return " ".join(unused(ask(pump, given, overrides)))


@pytest.mark.parametrize(
    "given",
    [
        {"size": "5 GB"},
        {"share": "0.6"},
        {"mode": "slow"},
        {"sizes": "3,4"},
        {"batch": "20"},
        {"batch": "20", "extra": "yes", "delay": "2 s"},
        {},
    ],
)
def test_what_changes_a_number_is_passed_over_in_silence(pump, given):
    assert told(pump, given) == ""


def test_what_nothing_looks_at_is_told(pump):
    expected = "spare was given and does not matter here: the answer does not use it."
    assert told(pump, {"spare": "3 s"}) == expected


def test_what_would_matter_farther_off_is_told_with_where(pump):
    text = told(pump, {"batch": "6"})
    assert text == "batch was given and does not matter here: it would at 12 steps."


def test_what_is_on_a_branch_that_does_not_bind_is_told_with_both_branches(pump):
    text = told(pump, {}, {"one_s": "0.1 s"})
    assert text == (
        "one_s was given and does not matter here: "
        "moving (4 s) binds step_s, not computing (400 ms)."
    )


def test_a_condition_that_does_not_hold_is_told(pump):
    text = told(pump, {"delay": "2 s"})
    expected = "it would where there is an extra round."
    assert text == f"delay_s was given and does not matter here: {expected}"


def test_a_flag_without_effect_is_told_and_one_with_effect_is_not(pump):
    assert "extra was given and does not matter here" in told(pump, {"extra": "yes"})
    assert told(pump, {"extra": "yes", "batch": "20"}) == ""


def test_what_was_set_and_does_not_matter_is_told(pump):
    assert "computing_s was given and does not matter" in told(pump, {}, {"computing_s": "1 s"})
    assert told(pump, {}, {"computing_s": "9 s"}) == ""
