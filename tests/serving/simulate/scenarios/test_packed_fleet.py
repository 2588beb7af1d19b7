"""Twenty models on nine accelerators."""

import pytest

from ridgeline.serving.plan.residents import Machines, first_fit, pack
from ridgeline.serving.simulate.scenarios.packed_fleet import fleet, started

#: H100s of which engines may use nine tenths.
NINE = Machines(9, 72e9, 2.0)


@pytest.mark.proves("S081")
@pytest.mark.parametrize("seed", range(3))
def test_packing_has_at_least_a_tenth_fewer_starts_than_first_fit(seed):
    models = fleet(seed)
    assert len(models) == 20
    assert pack(models, NINE).starts_per_s <= 0.9 * first_fit(models, NINE).starts_per_s


@pytest.mark.proves("S081")
def test_the_starts_of_a_day_are_those_expected():
    """Reduced: a thousand starts, of which chance alone makes 3 % more or fewer."""
    found = started(pack(fleet(2), NINE), NINE, days=1)
    assert found.starts > 900
    assert found.per_s == pytest.approx(found.expected_per_s, rel=0.05)
    assert found.waited <= 0.02 * found.starts


@pytest.mark.slow
@pytest.mark.proves("S081")
@pytest.mark.parametrize("seed", [1, 2])
def test_the_starts_of_ten_days_are_those_expected(seed):
    found = started(pack(fleet(seed), NINE), NINE, days=10)
    assert found.starts > 8_000
    assert found.per_s == pytest.approx(found.expected_per_s, rel=0.05)
    assert found.waited <= 0.02 * found.starts
