"""Little's law and backlogs, by walking through time second by second."""

import pytest

from ridgeline.physics.queues import backlog_requests, patience_s, requests_in_flight


def test_fifty_a_second_that_stay_twenty_seconds_are_a_thousand():
    inside = sum(1 for arrival in range(50 * 100) if 80 < arrival / 50 <= 100)
    assert requests_in_flight(50, 20) == pytest.approx(inside, rel=0.01) == 1000


def test_a_backlog_is_what_came_less_what_left():
    arrivals, overload, seconds = 50, 0.2, 30
    waiting = 0.0
    for _ in range(seconds):
        waiting += arrivals - arrivals * (1 - overload)
    assert backlog_requests(arrivals, overload, seconds) == pytest.approx(waiting)


def test_twenty_percent_too_much_fills_a_second_of_queue_in_five():
    assert patience_s(1, 0.2) == pytest.approx(5)
