"""A die that loses its coolant: how fast it warms, when it trips, who acts before that."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.physics.heat import warm_up_s
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

ROW = {"water_kg": "40 g", "metal_kg": "0.5 kg", "start_c": "50 C", "limit_c": "87 C"}


def lost(**given):
    return ask("coolant-loss", ROW | given, {"tdp_w": "700W"}).answer


@pytest.mark.proves("S130")
def test_700_w_into_40_g_of_water_and_half_a_kilogram_of_copper_trip_after_19_s():
    values = lost().values
    assert values["heating_rate"].value == pytest.approx(1.95, rel=0.01)
    assert values["seconds_to_trip"].value == pytest.approx(19, rel=0.01)


@pytest.mark.proves("S130")
def test_firmware_flow_switch_and_node_act_in_time_and_people_do_not():
    in_time = {row["layer"]: row["in time"] for row in lost().table}
    assert in_time == {
        "power brake": "yes",
        "flow switch": "yes",
        "node shutdown": "yes",
        "scheduler drain": "no",
        "operator": "no",
    }


def test_water_alone_would_warm_twice_as_fast():
    values = lost().values
    assert values["water_only_rate"].value == pytest.approx(4.18, rel=0.01)
    assert lost(metal_kg="0 kg").values["heating_rate"].value == pytest.approx(4.18, rel=0.01)


@pytest.mark.parametrize("flow_left", [0.0, 0.05, 0.2, 0.33])
def test_the_closed_form_is_what_small_time_steps_give(flow_left):
    trip = lost(flow_left=f"{flow_left}").values["seconds_to_trip"].value
    capacity = 0.04 * 4186 + 0.5 * 385
    carries = 700 * flow_left / (50 - 30)
    step, now, at = 1e-3, 50.0, 0.0
    while now < 87:
        now += (700 - carries * (now - 30)) / capacity * step
        at += step
    assert trip == pytest.approx(at, rel=0.002)


def test_enough_flow_settles_below_the_limit_and_never_trips():
    answer = lost(flow_left="0.5")  # settles at 30 + 20 / 0.5 = 70 C
    assert answer.values["seconds_to_trip"].value == float("inf")
    assert "settles" in answer.says
    assert all(row["in time"] == "yes" for row in answer.table)


def test_a_brake_stretches_the_time_by_what_it_takes_off():
    values = lost(braked_share="0.5").values
    assert values["seconds_braked"].value == pytest.approx(2 * values["seconds_to_trip"].value)


def test_a_larger_die_leaves_no_layer_but_the_brake():
    answer = ask("coolant-loss", ROW | {"metal_kg": "0 kg"}, {"tdp_w": "4kW"}).answer
    assert [row["layer"] for row in answer.table if row["in time"] == "yes"] == ["power brake"]


def test_a_slow_approach_takes_longer_than_the_straight_line():
    assert warm_up_s(37.0, 2.0, 0.03) > warm_up_s(37.0, 2.0) == 18.5


@pytest.mark.parametrize(("given", "where"), [({"limit_c": "50 C"}, "limit"),
                                              ({"inlet_c": "55 C"}, "start"),
                                              ({"start_c": "323 K"}, "start")])  # fmt: skip
def test_temperatures_out_of_order_or_in_kelvins_are_refused(given, where):
    with pytest.raises(SpecError) as caught:
        lost(**given)
    assert caught.value.where == where
