"""An alarm for guesses that hold more seldom: soon where they do, never for chance."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.acceptance_alarm import AcceptanceAlarm, Expected
from ridgeline.serving.simulate.chances import Chances


def rows(share, count, seed=0, drafts=4):
    """Rows of guesses: how many held, and how many were tried."""
    chances = Chances(seed)
    for row in range(count):
        held = 0
        while held < drafts and chances.share(row, held) < share:
            held += 1
        yield held, min(held + 1, drafts)


def first_alarm(share, count, expected, seed=0):
    """After how many tried guesses it alarms; None: never."""
    alarm, total = AcceptanceAlarm(expected), 0
    for held, tried in rows(share, count, seed):
        total += tried
        if alarm.saw(held, tried):
            return total
    return None


@pytest.mark.parametrize("seed", range(5))
def test_a_drop_alarms_within_a_few_hundred_guesses_and_health_does_not(seed):
    expected = Expected(0.7)
    assert first_alarm(0.4, 1000, expected, seed) < 400
    assert first_alarm(0.7, 20_000, expected, seed) is None
    assert first_alarm(0.9, 20_000, expected, seed) is None


def test_it_says_once_what_holds_and_again_only_after_health():
    alarm = AcceptanceAlarm(Expected(0.7, false_once_in=1e3))
    said = [why for why in (alarm.saw(0, 1) for _ in range(100)) if why]
    assert len(said) == 1
    assert said[0].startswith("0% of the last ")
    assert said[0].endswith("70% are expected")
    for _ in range(100):
        assert not alarm.saw(4, 4)
    assert any(alarm.saw(0, 1) for _ in range(100))


@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=200))
def test_a_row_that_held_never_alarms(told):
    alarm = AcceptanceAlarm(Expected(0.6, false_once_in=10.0))
    for held, ended in told:
        why = alarm.saw(held, held + ended)
        assert not (why and not ended)


@pytest.mark.parametrize(
    "wrong", [{"share": 1.0}, {"share": 0.1}, {"share": 0.5, "false_once_in": 1.0}]
)
def test_shares_that_no_guess_has_are_refused(wrong):
    with pytest.raises(ValueError, match=r"does not hold|no bound"):
        Expected(**wrong)
