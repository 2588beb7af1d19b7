"""What a power cap costs: the cube law, leakage, memory-bound work, and uneven ranks."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.physics.power import clock_share
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()


def cap(**given):
    return ask("power-cap", given).answer


def loss(**given):
    return cap(**given).values["loss"].value


@pytest.mark.proves("S129")
def test_30_percent_off_costs_11_by_the_cube_law_and_17_with_30_percent_leakage():
    assert loss(cap="0.7", static_share="0") == pytest.approx(0.112, rel=0.01)
    assert loss(cap="0.7", static_share="0.3") == pytest.approx(0.17, rel=0.01)


@pytest.mark.proves("S129")
def test_an_uneven_cap_costs_what_the_slowest_rank_loses():
    values = cap(cap="0.85", uneven="0.15").values  # ranks at 100 % and at 70 %
    assert values["loss_uneven"].value == pytest.approx(loss(cap="0.7"))
    assert values["uniformity_penalty"].value == pytest.approx(
        loss(cap="0.7") - loss(cap="0.85"), rel=1e-9
    )
    assert loss(cap="0.8") < values["loss_uneven"].value  # even 80 % beats a mixed 100 and 70


@pytest.mark.parametrize(
    ("at", "lost"), [("0.9", 0.035), ("0.8", 0.072), ("0.6", 0.157), ("0.5", 0.206)]
)
def test_the_curve_of_compute_bound_work(at, lost):
    assert loss(cap=at) == pytest.approx(lost, rel=0.02)
    row = next(row for row in cap().table if row["cap"].value == float(at))
    assert row["loss"].value == pytest.approx(loss(cap=at))


def test_decode_loses_nothing_and_work_near_the_ridge_only_what_crosses_it():
    assert loss(intensity="2 FLOP/B") == 0
    ridge = cap().values["ridge"].value
    assert loss(cap="0.7", intensity=f"{0.95 * ridge} FLOP/B") == pytest.approx(
        1 - 0.7 ** (1 / 3) / 0.95, rel=1e-6
    )


def test_below_the_voltage_floor_power_is_linear_in_the_clock():
    assert clock_share(0.125, 0.0, 0.5) == pytest.approx(0.5)
    assert clock_share(0.0625, 0.0, 0.5) == pytest.approx(0.25)
    assert clock_share(0.0625, 0.0, 0.1) == pytest.approx(0.0625 ** (1 / 3))


def test_a_cap_gains_work_per_joule():
    gain = cap(cap="0.7").values["work_per_joule_gain"].value
    assert gain == pytest.approx(0.7 ** (1 / 3) / 0.7 - 1, rel=1e-6)


@pytest.mark.parametrize("given", [{"cap": "0.3", "uneven": "0.3"},
                                   {"cap": "0.35", "static_share": "0.3"}])  # fmt: skip
def test_a_cap_at_or_below_static_power_is_refused(given):
    with pytest.raises(SpecError, match="static") as caught:
        cap(**given)
    assert caught.value.where == "cap"
