"""Compute in a power envelope: whole nodes after overheads, and what trimming each one gives."""

import pytest

from ridgeline.errors import CatalogError, SpecError, UnitError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

ROW = {"site_w": "1 MW", "pue": "1.25", "network_share": "0.05", "node_w": "10.2 kW"}


def envelope(**given):
    return ask("power-envelope", ROW | given).answer


@pytest.mark.proves("S023")
def test_a_megawatt_at_pue_1_25_with_5_percent_network_holds_592_gpus():
    values = envelope().values
    assert values["gpus"].value == 592
    assert values["nodes"].value == 74


@pytest.mark.proves("S023")
def test_every_option_has_gpus_flops_and_the_gain_of_each_overhead_cut():
    rows = envelope(others="b200-sxm 14.3kW, gb300 135kW/72").table
    assert [row["GPUs"].value for row in rows] == [592, 53 * 8, 5 * 72]
    assert rows[1]["FLOP/s"].value == pytest.approx(424 * 2.25e15, rel=0.01)
    for row in rows:
        assert {"+cooling", "+distribution", "+network", "+fans"} <= row.keys()


@pytest.mark.parametrize(
    ("cut", "gpus"),
    [
        ("cooling", 1000 / (1.25 - 0.19 / 2) * 0.95 / 10.2),
        ("distribution", 1000 / (1.25 - 0.06 / 2) * 0.95 / 10.2),
        ("network", 1000 / 1.25 * 0.975 / 10.2),
        ("fans", 1000 / 1.25 * 0.95 / (10.2 * 0.95)),
    ],
)
def test_each_cut_gives_the_whole_nodes_that_its_power_feeds(cut, gpus):
    values = envelope(cut="0.5", distribution_share="0.06", fan_share="0.1").values
    assert values[f"gain_{cut}"].value == (int(gpus) - 74) * 8


def test_a_megawatt_at_pue_1_3_and_1_28_kw_a_gpu_holds_600():
    values = envelope(pue="1.3", network_share="0", node_w="10.24 kW").values
    assert values["gpus"].value == 600


def test_what_is_unused_is_less_than_a_node():
    values = envelope().values
    assert values["unused"].value == pytest.approx(760e3 - 74 * 10.2e3)
    assert values["unused"].value < 10.2e3


@pytest.mark.parametrize(
    ("given", "kind", "where"),
    [
        ({"others": "b200-sxm 14.3kg"}, UnitError, "others"),
        ({"others": "gb300 135kW/x"}, SpecError, "others"),
        ({"others": "b2000 14kW"}, CatalogError, ""),
        ({"pue": "1.05", "distribution_share": "0.06"}, SpecError, "distribution-share"),
        ({"pue": "0.9"}, SpecError, "pue"),
    ],
)
def test_options_and_overheads_that_cannot_be_are_refused(given, kind, where):
    with pytest.raises(kind) as caught:
        envelope(**given)
    assert where in caught.value.where
    assert caught.value.remedy
