"""The liquid loop: flow, units with spares, limits of the coolant, and what trips."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()


def loop(**given):
    return ask("liquid-cooling", given).answer


@pytest.mark.proves("S013")
@pytest.mark.parametrize(("cdu", "needed"), [("1.3 MW", 1), ("500 kW", 3), ("260 kW", 5)])
def test_a_megawatt_at_10_k_flows_at_1433_litres_a_minute_and_has_n_plus_1_cdus(cdu, needed):
    answer = loop(heat_w="1 MW", rise_k="10 K", coolant="water", cdu_w=cdu, spare_cdus="1")
    assert answer.values["flow"].to("L/min") == pytest.approx(1433, rel=0.01)
    assert answer.values["cdus_needed"].value == needed
    assert answer.values["cdus"].value == needed + 1


@pytest.mark.proves("S013")
def test_the_answer_holds_water_limits_and_a_trip_logic_with_an_action_each():
    rows = {row["watch"]: row for row in loop().table}
    assert rows["pH"]["least"].value == 7
    assert rows["conductivity"]["most"].to("uS/cm") == pytest.approx(20)
    assert rows["filter mesh"]["most"].to("um") == pytest.approx(50)
    assert "off" in rows["flow of the loop"]["then"]
    assert "valves" in rows["leak rope"]["then"]
    assert all(row["then"] for row in rows.values())


def test_the_flow_trip_is_where_the_return_would_pass_its_limit():
    answer = loop(rise_k="10 K", supply_c="25 C", return_limit_c="45 C")
    assert answer.values["trip_flow"].value == pytest.approx(answer.values["flow"].value / 2)


def test_half_the_rise_needs_twice_the_flow_and_then_pumps_bind_before_heat():
    answer = loop(rise_k="5 K")
    assert answer.values["flow"].to("L/min") == pytest.approx(2867, rel=0.01)
    needed = answer.values["cdus_needed"]
    assert needed.labels[needed.chosen] == "flow"


def test_a_rack_of_120_kw_takes_172_litres_a_minute():
    flow = loop(rack_w="120 kW", rise_k="10 K").values["rack_flow"]
    assert flow.to("L/min") == pytest.approx(172, rel=0.01)


def test_glycol_needs_4_percent_more_flow_and_not_8_to_10():
    water, glycol = loop(), loop(coolant="pg25")
    more = glycol.values["flow"].value / water.values["flow"].value - 1
    assert more == pytest.approx(0.042, abs=0.002)
    assert any("4% more flow than water" in note for note in water.notes)


def test_spares_on_two_feeds_may_still_not_carry_the_load_without_one():
    carried = loop(cdu_w="400 kW").values["carried_without_a_feed"]  # 5 of 4 needed, 3 on one feed
    assert carried.value == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("given", "watch"),
    [
        ({"ph": "6.5"}, "pH"),
        ({"conductivity": "40 uS/cm"}, "conductivity"),
        ({"filter_m": "100 um"}, "filter mesh"),
        ({"dew_point_c": "24 C"}, "supply temperature"),
        ({"rise_k": "25 K"}, "return temperature"),
    ],
)
def test_a_loop_out_of_its_limits_is_answered_with_no_and_what_is_out(given, watch):
    answer = loop(**given)
    assert not answer.ok
    assert any(watch in note for note in answer.notes)


@pytest.mark.parametrize(
    ("given", "where"),
    [({"supply_c": "45 C"}, "supply"), ({"supply_c": "298 K"}, "supply")],
)
def test_temperatures_that_cannot_be_are_refused(given, where):
    with pytest.raises(SpecError) as caught:
        loop(**given)
    assert caught.value.where == where
    assert caught.value.remedy
