"""The 10,000-GPU bill of material, with the ledger's inputs."""

import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

ROW = {
    "radix": 64, "pod_gpus": 1024, "node_gpus": 8, "node_w": "10.2 kW", "switch_w": "1.4 kW",
    "pue": "1.25", "within_s": "60 s", "failing_share": "1%", "turnaround_s": "10 day",
}  # fmt: skip
#: The row's 10,000 devices and its checkpoint of 5 TB.
SET = {"gpus_needed": "10000", "checkpoint_bytes": "5 TB"}


def bill(overrides=SET, **given):
    return ask("cluster-bill", ROW | given, overrides).answer


@pytest.mark.proves("S134")
def test_10000_gpus_take_1280_nodes_10_pods_800_switches_and_83_gb_a_second():
    values = bill().values
    assert values["nodes"].value == 1280
    assert values["pods"].value == 10
    assert values["gpus"].value == 10_240
    assert values["switches"].value == 800
    assert bill(core_oversubscription="2").values["switches"].value == 720
    assert values["checkpoint_bytes_per_s"].to("GB/s") == pytest.approx(83, rel=0.01)


@pytest.mark.proves("S134")
def test_it_draws_14_2_mw_of_it_and_17_7_mw_at_a_pue_of_1_25():
    values = bill().values
    assert values["it_w"].to("MW") == pytest.approx(14.2, rel=0.005)
    assert values["site_w"].to("MW") == pytest.approx(17.7, rel=0.005)
    fewer = bill(SET | {"switches": "700"}).values
    assert fewer["it_w"].to("MW") == pytest.approx(14.0, rel=0.005)


@pytest.mark.proves("S134")
def test_spares_are_the_three_reserves_less_what_whole_pods_leave_over():
    values = bill(together=32, canaries=1, replacement_s="4 h").values
    assert values["spare_nodes"].value == 8 + 2 + 32
    assert values["spares_short"].value == 42 - (1280 - 1250)
    alone = ask("spare-nodes", {"nodes": 1280}).answer.values["spare_nodes"]
    assert values["spare_nodes"].value == alone.value


@pytest.mark.proves("S134")
def test_devices_come_from_the_training_flop_and_each_line_has_a_reason():
    answer = ask("cluster-bill", ROW | {"model": "llama-3.1-405b", "deadline_s": "120 day"}).answer
    flop = 6 * 403_752_042_496 * 15.6e12
    needed = flop / (989.4e12 * 0.40 * 0.93 * 120 * 86400)
    rows = {row["item"]: row for row in answer.table}
    assert rows["devices needed"]["number"].value == pytest.approx(needed, abs=1)
    assert rows["checkpoint"]["number"].to("TB") == pytest.approx(405.853e9 * 12 / 1e12, rel=1e-3)
    assert all(row["reason"] for row in answer.table)
    assert {"pods", "switches", "storage rate", "site power", "spares: repair"} <= set(rows)


def test_storage_takes_the_servers_of_its_rate_or_its_room_and_one_more():
    by_rate = bill(server_bytes_per_s="10 GB/s", server_bytes="1 PB").values["storage_servers"]
    by_room = bill(server_bytes_per_s="100 GB/s", server_bytes="10 TB").values["storage_servers"]
    assert by_rate.value == 9 + 1
    assert by_room.value == 10 + 1


def test_half_the_deadline_takes_twice_the_pods():
    long = ask("cluster-bill", ROW | {"deadline_s": "120 day"}).answer.values
    short = ask("cluster-bill", ROW | {"deadline_s": "60 day"}).answer.values
    assert (long["pods"].value, short["pods"].value) == (10, 20)


def test_fewer_switches_than_a_full_bisection_needs_are_named_as_folklore():
    assert any("Often told" in note and "2:1 core" in note for note in bill().notes)
