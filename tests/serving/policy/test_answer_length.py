"""An answer's bound is its client's where it names one, ours where not, never above the context."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.answer_length import longest, needs_bound
from ridgeline.serving.policy.limits import Budget, Limits
from ridgeline.serving.policy.price import Price

BUDGET = Budget(Decimal(5), "day", "UTC")
tokens = st.integers(0, 10**6)


@given(asked=tokens, usual=tokens, context=st.integers(1, 10**6), prompt=tokens)
def test_what_a_client_asks_is_cut_by_the_context_only(asked, usual, context, prompt) -> None:
    most = longest(asked, usual=usual, context_tokens=context, prompt_tokens=prompt)
    assert most == min(asked, context)


@given(usual=tokens, context=st.integers(1, 10**6), prompt=tokens)
def test_without_a_word_of_the_client_prompt_and_answer_fit(usual, context, prompt) -> None:
    most = longest(None, usual=usual, context_tokens=context, prompt_tokens=prompt)
    assert most <= usual
    assert most <= 16 or prompt + most <= context


def test_where_nobody_knows_the_context_the_usual_length_counts() -> None:
    assert longest(None, usual=512, context_tokens=None, prompt_tokens=10**6) == 512
    assert longest(9000, usual=512, context_tokens=None, prompt_tokens=1) == 9000


@pytest.mark.parametrize(
    ("limits", "output_usd", "needed"),
    [
        (Limits(), 1, False),
        (Limits(output_tokens_per_minute=10), 0, True),
        (Limits(budget=BUDGET), 1, True),
        (Limits(budget=BUDGET), 0, False),
    ],
)
def test_a_bound_is_needed_where_a_limit_depends_on_it(limits, output_usd, needed) -> None:
    price = Price(Decimal(1), Decimal(1), Decimal(output_usd))
    assert needs_bound([Limits(), limits], price) is needed
