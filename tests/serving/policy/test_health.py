"""When a replica goes out and comes back, alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.health import OUT_AT, Health, Sign, judge
from ridgeline.serving.policy.route import State


def after(*signs: Sign, start: Health | None = None) -> Health:
    health = start or Health()
    for sign in signs:
        health = judge(health, sign)
    return health


READY = after(Sign.READY)


@pytest.mark.parametrize(
    ("signs", "state"),
    [
        ((), State.STARTING),
        ((Sign.NOT_READY,), State.STARTING),
        ((Sign.REFUSED,) * 50, State.STARTING),  # a process that has not bound its port yet
        ((Sign.READY,), State.READY),
        ((Sign.READY, Sign.REFUSED), State.READY),  # one broken connection proves nothing
        ((Sign.READY, Sign.REFUSED, Sign.REFUSED), State.DOWN),
        ((Sign.READY, *[Sign.SILENT] * 5), State.READY),  # busy
        ((Sign.READY, *[Sign.SILENT] * 6), State.DOWN),
        ((Sign.READY, Sign.NOT_READY), State.DOWN),  # it says so itself
        ((Sign.READY, Sign.NOT_READY, Sign.READY), State.READY),
        ((Sign.READY, Sign.DRAIN, Sign.READY), State.DRAINING),
    ],
)
def test_the_state_after_these_signs(signs, state) -> None:
    assert after(*signs).state is state


def test_a_replica_that_still_answers_requests_is_never_dead_by_slow_probes() -> None:
    health = READY
    for _ in range(100):
        health = after(*[Sign.SILENT] * 5, Sign.ANSWERED, start=health)
    assert health.state is State.READY


def test_an_answered_request_alone_does_not_bring_a_replica_back() -> None:
    down = after(Sign.NOT_READY, start=READY)
    assert judge(down, Sign.ANSWERED).state is State.DOWN


@given(st.lists(st.sampled_from(Sign)))
def test_draining_is_final_and_strikes_stay_bounded(signs) -> None:
    health = after(*signs)
    assert (health.state is State.DRAINING) == (Sign.DRAIN in signs)
    assert 0 <= health.strikes <= OUT_AT
    assert health.reason


@given(st.lists(st.sampled_from(Sign)))
def test_only_a_ready_probe_makes_a_replica_ready(signs) -> None:
    if after(*signs).state is State.READY:
        assert Sign.READY in signs
        assert Sign.NOT_READY not in signs[max(i for i, s in enumerate(signs) if s is Sign.READY) :]
