"""Two tiers, three, and the ways around a third, with the ledger's inputs."""

import pytest

from ridgeline.physics.fabric import three_tier_switches, two_tier_switches
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()


def values(**given):
    return {k: v.value for k, v in ask("fabric-tiers", given).answer.values.items()}


@pytest.mark.proves("S021")
def test_two_tiers_of_144_ports_reach_10368_and_64_port_switches_need_three_and_800():
    found = values(endpoints=10_240, radix=64, wider_radix=144)
    assert found["wide_two_tier_most"] == 10_368
    assert found["wide_tiers"] == 2
    assert found["tiers"] == 3
    assert found["switches"] == 800
    assert values(endpoints=10_368, radix=64, wider_radix=144)["wide_tiers"] == 2
    assert values(endpoints=10_369, radix=64, wider_radix=144)["wide_tiers"] == 3
    # 128 ports miss it.
    assert values(endpoints=10_240, radix=64, wider_radix=128)["wide_tiers"] == 3


@pytest.mark.proves("S021")
def test_every_design_states_optics_power_and_money():
    asked = ask(
        "fabric-tiers",
        {
            "endpoints": 10_240,
            "switch_usd": "30000 USD",
            "transceiver_usd": "1000 USD",
            "switch_w": "1.4 kW",
            "transceiver_w": "10 W",
        },
    )
    first, wide, rails, planes = asked.answer.table
    assert first["transceivers"].value == 61_440
    assert first["power"].value == pytest.approx(800 * 1400 + 61_440 * 10)
    assert first["cost"].value == pytest.approx(800 * 30_000 + 61_440 * 1000)
    assert wide["switches"].value == 215
    # Eight fabrics of 1,280 ports: 40 leaves and 20 spines each; four planes of 256 ports alike.
    assert (rails["tiers"].value, rails["switches"].value) == (2, 480)
    assert (planes["tiers"].value, planes["switches"].value) == (2, 480)


@pytest.mark.proves("S111")
def test_three_tiers_of_64_take_3_33_times_the_switches_of_two_of_128_and_half_more_optics():
    found = values(endpoints=8192, radix=64, wider_radix=128)
    assert (found["tiers"], found["wide_tiers"]) == (3, 2)
    assert found["switch_ratio"] == pytest.approx(10 / 3)
    assert found["cable_ratio"] == pytest.approx(1.5)
    assert found["extra_hops"] == 2
    rows = ask("fabric-tiers", {"endpoints": 8192, "wider_radix": 128}).answer.table
    assert rows[0]["transceivers"].value / rows[1]["transceivers"].value == pytest.approx(1.5)
    assert [row["hops"].value for row in rows[:2]] == [5, 3]


def test_adding_a_tier_at_equal_radix_is_5_thirds_and_not_three_times():
    notes = " ".join(ask("fabric-tiers").answer.notes)
    assert "1.67x" in notes
    assert three_tier_switches(2048, 64) / two_tier_switches(2048, 64) == pytest.approx(5 / 3)
    # And from 2,048 to 4,096 endpoints of 64 ports, 96 become 320.
    assert values(endpoints=2048)["switches"] == 96
    assert values(endpoints=4096)["switches"] == 320


@pytest.mark.parametrize(("endpoints", "radix"), [(2048, 64), (8192, 128), (10_368, 144)])
def test_full_fabrics_count_as_their_closed_forms(endpoints, radix):
    assert values(endpoints=endpoints, radix=radix)["switches"] == two_tier_switches(
        endpoints, radix
    )
    full = radix**3 // 4
    assert values(endpoints=full, radix=radix)["switches"] == three_tier_switches(full, radix)
