"""What an attempt says of a replica, alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.failures import Outcome, RetryBudget, of_broken, of_status
from ridgeline.serving.policy.health import Health, Sign, judge
from ridgeline.serving.policy.states import State


@pytest.mark.parametrize(
    ("status", "outcome", "may_retry"),
    [
        (200, Outcome.ANSWERED, False),
        (400, Outcome.CLIENT, False),
        (401, Outcome.CLIENT, False),
        (404, Outcome.CLIENT, False),
        (408, Outcome.FAILED, True),
        (413, Outcome.CLIENT, False),
        (422, Outcome.CLIENT, False),
        (429, Outcome.BUSY, True),
        (500, Outcome.FAILED, True),
        (502, Outcome.FAILED, True),
        (503, Outcome.BUSY, True),
    ],
)
def test_the_outcome_of_a_status(status, outcome, may_retry) -> None:
    judgement = of_status(status)
    assert (judgement.outcome, judgement.may_retry) == (outcome, may_retry)
    assert str(status) in judgement.reason


@given(st.lists(st.one_of(st.integers(400, 407), st.integers(409, 499), st.just(503))))
def test_clients_mistakes_and_busy_replicas_never_take_anybody_out(statuses) -> None:
    health = judge(Health(), Sign.FIRST_TOKEN)
    for status in statuses:
        sign = of_status(status).sign
        health = health if sign is None else judge(health, sign)
    assert health.state is State.READY


def test_a_broken_connection_is_a_failure_that_another_replica_may_mend() -> None:
    for connected in (True, False):
        assert of_broken(connected=connected).sign is Sign.REFUSED
        assert of_broken(connected=connected).may_retry


@given(st.lists(st.booleans(), max_size=300))
def test_retries_never_exceed_the_savings_and_a_share_of_the_requests(retries) -> None:
    budget, spent = RetryBudget(saved=3, share=0.2, most=10), 0
    for count, wanted in enumerate(retries, 1):
        budget = budget.earn()
        if wanted and (left := budget.spend()) is not None:
            budget, spent = left, spent + 1
        assert spent <= 3 + 0.2 * count + 1e-6
        assert 0 <= budget.saved <= 10
