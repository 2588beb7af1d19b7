"""A rack-wide domain against small nodes, with the ledger's inputs."""

import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()


def ask_domains(**given):
    return ask("scale-up-domain", given).answer


@pytest.mark.proves("S022")
def test_the_rack_has_nine_times_the_blast_radius_and_18_times_a_400g_card_per_direction():
    answer = ask_domains(rack="gb200", node="b200-sxm", nic_bytes_per_s="400 Gb/s")
    assert answer.values["blast_radius_ratio"].value == 9
    assert answer.values["link_rate_ratio"].value == 18
    assert ask_domains(nic_bytes_per_s="800 Gb/s").values["link_rate_ratio"].value == 9
    assert any("one direction" in note or "Per direction" in note for note in answer.notes)


@pytest.mark.proves("S022")
def test_step_time_of_each_design_counts_every_byte_on_the_link_that_it_takes():
    answer = ask_domains(group=64, exchanged_bytes="6.3 GB", compute_s="50 ms")
    # 63 peers of 0.1 GB each. Rack: all inside. Node: 7 inside, 56 over the card.
    assert answer.values["rack_step"].value == pytest.approx(0.050 + 6.3e9 / 900e9)
    assert answer.values["node_step"].value == pytest.approx(0.050 + 5.6e9 / 50e9)


def test_a_group_that_fits_a_node_gains_nothing_from_the_rack():
    answer = ask_domains(group=8)
    assert answer.values["step_gain"].value == pytest.approx(1)


@pytest.mark.proves("S022")
def test_the_hall_s_gaps_are_what_a_rack_needs_over_what_it_offers_and_never_negative():
    answer = ask_domains(
        rack_w="132 kW", hall_rack_w="40 kW", rack_kg="1360 kg", hall_rack_kg="1200 kg"
    )
    assert answer.values["power_gap_w"].to("kW") == pytest.approx(92)
    assert answer.values["mass_gap_kg"].value == pytest.approx(160)
    roomy = ask_domains(hall_rack_w="200 kW", hall_rack_kg="2000 kg")
    assert roomy.values["power_gap_w"].value == 0
    assert roomy.values["mass_gap_kg"].value == 0
    assert not any("lacks" in note for note in roomy.notes)


def test_devices_out_on_average_follow_littles_law_over_domains():
    answer = ask_domains(gpus=576, device_failure_s="72000 h", repair_s="10 h")
    # A domain of 72 fails every 1,000 h; eight of them, 72 devices for 10 h each.
    assert answer.values["lost_gpus"].value == pytest.approx(8 * 72 * 10 / 1000)
    assert answer.table[0]["fails every"].to("h") == pytest.approx(1000)


def test_a_domain_larger_than_the_job_loses_no_more_than_the_job():
    pod = ask_domains(rack="tpu-v7", gpus=1024, rack_gpus=64)
    assert 0.5 * 1024 < pod.values["lost_gpus"].value <= 1024
    assert pod.table[0]["racks"].value == 16
    assert not any("domain of 72" in note for note in pod.notes)
    assert any("domain of 72" in note for note in ask_domains().notes)
