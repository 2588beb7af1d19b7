"""When a replica goes out and comes back, alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.health import FAILED_AT, OUT_AT, Health, Sign, judge
from ridgeline.serving.policy.states import State


def after(*signs: Sign, start: Health | None = None) -> Health:
    health = start or Health()
    for sign in signs:
        health = judge(health, sign)
    return health


READY = after(Sign.READY, Sign.FIRST_TOKEN)
TOKEN = Sign.FIRST_TOKEN


@pytest.mark.parametrize(
    ("signs", "state"),
    [
        ((), State.STARTING),
        ((Sign.REFUSED,) * 50, State.STARTING),  # a process that has not bound its port yet
        ((Sign.NOT_READY,), State.LOADING),
        ((Sign.READY,) * 50, State.LOADING),  # a health page is no token
        ((Sign.NOT_READY, *[Sign.REFUSED] * 2), State.STARTING),  # it died while it loaded
        ((TOKEN,), State.READY),
        ((TOKEN, Sign.REFUSED), State.READY),  # one broken connection proves nothing
        ((TOKEN, Sign.REFUSED, Sign.REFUSED), State.DOWN),
        ((TOKEN, Sign.REFUSED, Sign.READY, Sign.REFUSED), State.READY),
        ((TOKEN, *[Sign.SILENT] * 5), State.READY),  # busy
        ((TOKEN, *[Sign.SILENT] * 6), State.DOWN),
        ((TOKEN, Sign.NOT_READY), State.DOWN),  # it says so itself
        ((TOKEN, Sign.NOT_READY, Sign.READY), State.DOWN),
        ((TOKEN, Sign.NOT_READY, Sign.READY, TOKEN), State.READY),
        ((TOKEN, *[Sign.FAILED] * (FAILED_AT - 1)), State.READY),
        ((TOKEN, *[Sign.FAILED, Sign.READY] * FAILED_AT), State.DOWN),  # healthy pages, no answers
        ((TOKEN, *[Sign.FAILED, Sign.ANSWERED] * FAILED_AT), State.READY),
        ((TOKEN, *[Sign.FAILED] * FAILED_AT, TOKEN), State.READY),
        ((TOKEN, Sign.EMPTIED), State.READY),  # nothing to do is no wish to end
        ((TOKEN, Sign.DRAIN, Sign.READY, TOKEN), State.DRAINING),
        ((TOKEN, Sign.DRAIN, Sign.EMPTIED), State.EMPTY),
        ((TOKEN, Sign.DRAIN, Sign.EMPTIED, Sign.STOP), State.STOPPED),
        ((TOKEN, Sign.STOP, TOKEN), State.STOPPED),
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
def test_only_a_token_makes_ready_and_leaving_is_final(signs) -> None:
    health = Health()
    for sign in signs:
        before, health = health, judge(health, sign)
        if health.state is State.READY and before.state is not State.READY:
            assert sign is Sign.FIRST_TOKEN
        if before.state in (State.DRAINING, State.EMPTY, State.STOPPED):
            assert health.state in (State.DRAINING, State.EMPTY, State.STOPPED)
        assert 0 <= health.strikes <= OUT_AT
        assert 0 <= health.failures <= FAILED_AT
        assert health.reason
