"""Chance by name."""

import numpy as np
import pytest

from ridgeline.serving.simulate.chances import Chances


def test_a_name_has_its_own_chance_and_a_seed_another_one():
    one, other = Chances(1), Chances(2)
    assert one.bits("a", 1) == one.bits("a", 1)
    assert len({one.bits("a", 1), one.bits("a", 2), one.bits("b", 1), other.bits("a", 1)}) == 4


def test_exponential_draws_have_its_mean_variance_and_tail():
    draws = np.array([Chances(3).exponential("a", number) for number in range(20_000)])
    assert draws.mean() == pytest.approx(1, abs=0.03)
    assert draws.var() == pytest.approx(1, abs=0.08)
    assert (draws > 2).mean() == pytest.approx(np.exp(-2), abs=0.01)
