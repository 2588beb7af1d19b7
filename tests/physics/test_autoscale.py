"""Autoscaling arithmetic, by the rules that Kubernetes documents."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.physics.autoscale import climb_s, replicas_asked, surge_pods, unavailable_pods


def test_twenty_waiting_at_four_each_ask_for_five_within_two_and_twelve():
    assert replicas_asked(20, 4, 2, 12) == 5
    assert replicas_asked(0, 4, 2, 12) == 2
    assert replicas_asked(48, 4, 2, 12) == replicas_asked(4800, 4, 2, 12) == 12


@given(st.integers(0, 5000), st.integers(1, 50))
def test_each_replica_gets_at_most_its_target(total: int, target: int):
    asked = replicas_asked(total, target, 1, 10**6)
    assert asked == max(1, math.ceil(total / target))


def test_two_pods_every_two_minutes_take_ten_minutes_from_two_to_twelve():
    pods, minutes = 2, 0
    while pods < 12:
        pods, minutes = pods + 2, minutes + 2
    assert climb_s(2, 12, 2, 120) == minutes * 60 == 600


@pytest.mark.parametrize(("replicas", "down", "extra"), [(3, 0, 1), (4, 1, 1), (5, 1, 2)])
def test_a_rolling_update_frees_a_pod_from_four_replicas_on(replicas: int, down: int, extra: int):
    assert unavailable_pods(replicas) == down
    assert surge_pods(replicas) == extra
