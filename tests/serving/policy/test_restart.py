from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.restart import LONGEST_DELAY_S, restart


def test_delays_double_until_the_longest():
    delays, deaths = [], 0
    for _ in range(8):
        decision = restart(deaths, lived_s=0.1)
        deaths = decision.deaths
        delays.append(decision.delay_s)
    assert delays == [1, 2, 4, 8, 16, 32, 60, 60]


def test_a_long_life_forgives_earlier_deaths():
    assert restart(7, lived_s=600).delay_s == 1


@given(st.integers(0, 10**6), st.floats(0, 1e9))
def test_the_delay_stays_between_one_second_and_the_longest(deaths, lived_s):
    assert 1 <= restart(deaths, lived_s).delay_s <= LONGEST_DELAY_S
