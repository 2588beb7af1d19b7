"""What guesses give: the law of a gain, and where it is 1."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.physics.speculation import (
    accepted_length,
    break_even_batch,
    check_cost,
    speculation_gain,
)
from ridgeline.quantity import given as number
from ridgeline.quantity import value_of


@given(st.floats(0.1, 0.95), st.integers(1, 8), st.floats(10, 1000))
def test_at_the_break_even_batch_a_free_draft_gains_nothing(acceptance, drafts, critical):
    kept = accepted_length(acceptance, drafts)
    batch = break_even_batch(critical, kept, drafts + 1)
    assert batch <= critical, "the plain step still reads weights"
    cost = check_cost(batch, drafts + 1, critical)
    assert speculation_gain(kept, 1.0, cost, 0.0) == pytest.approx(1.0)


def test_floats_and_quantities_agree():
    seconds = (number(value, "s") for value in (0.01, 0.012, 0.002))
    exact = speculation_gain(number(2.77), *seconds)
    assert value_of(exact) == pytest.approx(speculation_gain(2.77, 0.01, 0.012, 0.002))
