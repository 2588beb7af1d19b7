"""Who is let in can have his first token as promised."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.admit import Admit, Refuse
from ridgeline.serving.policy.first_token import Budget, admit_prompt

BUDGET = Budget(0.2, 0.03, 0.005, 0.02, 20_000.0)


def test_the_longest_prompt_is_what_the_rest_of_the_promise_computes():
    assert BUDGET.limit_tokens == 2900
    assert isinstance(admit_prompt(2900, 400, BUDGET), Admit)
    assert isinstance(admit_prompt(2900, 401, BUDGET), Refuse)
    too_long = admit_prompt(2901, 0, BUDGET)
    assert isinstance(too_long, Refuse)
    assert "2900" in too_long.reason


@given(st.integers(1, 5000), st.integers(0, 10_000))
def test_who_is_let_in_has_it_in_time_and_who_comes_again_as_told_is_let_in(tokens, ahead):
    verdict = admit_prompt(tokens, ahead, BUDGET)
    if isinstance(verdict, Admit):
        took_s = BUDGET.network_s + BUDGET.routing_s + (ahead + tokens) / BUDGET.tokens_per_s
        assert took_s <= BUDGET.promise_s + 1e-9
    elif tokens <= BUDGET.limit_tokens:
        left = ahead - int(verdict.retry_after_s * BUDGET.tokens_per_s) - 1
        assert isinstance(admit_prompt(tokens, max(left, 0), BUDGET), Admit)


def test_a_promise_that_is_spent_before_any_prefill_is_refused():
    with pytest.raises(ValueError, match="spent"):
        Budget(0.05, 0.03, 0.005, 0.02, 20_000.0)
