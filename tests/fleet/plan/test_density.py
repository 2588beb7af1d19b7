"""Denser racks in batches: capacity keeps its floor at every moment, or the answer is no."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()


def densify(**given):
    return ask("rack-density", given).answer


def in_use(answer, racks, rack_w, density):
    """Capacity after each event of the plan, counted again from the racks that are out."""
    events = []
    for row in answer.table:
        events.append((row["starts"].value, 1, -row["racks out"].value * rack_w))
        events.append((row["ends"].value, 0, row["racks out"].value * rack_w * density))
    now, seen = racks * rack_w, [(0.0, racks * rack_w)]
    for at, _, change in sorted(events):
        now += change
        seen.append((at, now))
    return seen


@pytest.mark.proves("S028")
@given(
    racks=st.integers(1, 60),
    rack_kw=st.integers(5, 80),
    density=st.floats(1.05, 4),
    floor_share=st.floats(0.1, 1.2),
    crew=st.integers(1, 12),
)
def test_capacity_never_drops_below_the_floor_or_the_plan_is_refused(
    racks, rack_kw, density, floor_share, crew
):
    rack_w = rack_kw * 1e3
    floor_w = floor_share * racks * rack_w
    answer = densify(
        racks=str(racks), rack_w=f"{rack_kw} kW", density=f"{density} x", floor_w=f"{floor_w} W",
        crew_racks=str(crew), feed_w="100 MW",
    )  # fmt: skip
    can_start = (racks - 1) * rack_w >= floor_w * (1 - 1e-9)
    assert answer.ok == can_start
    if not can_start:
        assert answer.values["short"].value == pytest.approx(floor_w - (racks - 1) * rack_w)
        assert "cannot" in answer.says
        return
    seen = in_use(answer, racks, rack_w, density)
    # At one instant a batch comes back before the next one goes.
    after = dict(seen)
    assert min(after.values()) >= floor_w * (1 - 1e-6)
    assert seen[-1][1] == pytest.approx(racks * rack_w * density)
    assert max(row["racks out"].value for row in answer.table) <= crew
    assert min(after.values()) == pytest.approx(answer.values["least_capacity"].value)


@pytest.mark.proves("S028")
def test_inputs_that_cannot_be_met_are_reported_with_what_is_missing():
    floor = densify(racks="40", rack_w="40 kW", floor_w="1.58 MW")
    assert not floor.ok
    assert floor.values["short"].to("kW") == pytest.approx(20)
    feed = densify(racks="40", rack_w="40 kW", density="2 x", feed_w="3 MW")
    assert not feed.ok
    assert "feed" in feed.says
    assert feed.values["short"].to("kW") == pytest.approx(200)


def test_no_plan_has_fewer_batches():
    """Racks to take out are tried in every way, batch after batch."""
    racks, old, density, floor, crew = 7, 10, 2, 45, 3

    def fewest(done):
        if done == racks:
            return 0
        room = [
            out for out in range(1, min(crew, racks - done) + 1)
            if (racks - done - out) * old + done * old * density >= floor
        ]  # fmt: skip
        return 1 + min((fewest(done + out) for out in room), default=99)

    answer = densify(racks="7", rack_w="10 kW", density="2 x", floor_w="45 kW", crew_racks="3")
    assert answer.values["phases"].value == fewest(0)


def test_the_latest_of_four_upgrades_decides_the_start():
    start = densify(cooling_lead_s="400 day").values["start"]
    assert start.to("day") == pytest.approx(400)
    assert start.labels[start.chosen] == "cooling"


def test_the_move_wins_where_it_is_sooner_and_cheap():
    stay = densify(move_lead_s="900 day")
    assert stay.values["upgrade_over_move"].value < 1
    assert "upgrade:" in stay.says
    go = densify(move_lead_s="60 day", move_usd_per_w="5 USD/W")
    assert go.values["upgrade_over_move"].value > 1
    assert "move:" in go.says


def test_both_costs_count_capacity_that_is_missing_meanwhile():
    answer = densify(value_usd_per_j="2 USD/kWh", upgrade_usd_per_w="0 USD/W")
    waiting_kwh = (3200 - 1600) * 270 * 24
    batches_kwh = sum((3200 - row["capacity meanwhile"].to("kW")) * 14 * 24 for row in answer.table)
    cost = answer.values["upgrade_cost"].value
    assert cost == pytest.approx(2 * (waiting_kwh + batches_kwh), rel=1e-6)
