"""The management network, with the ledger's inputs."""

import ipaddress

import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

ROW = {
    "nodes": 1280, "bmc_ports": 1, "host_ports": 1, "dpu_ports": 2,
    "switches": 800, "nodes_per_pdu": 2, "cdus": 0,
}  # fmt: skip


@pytest.mark.proves("S018")
def test_1280_nodes_give_over_five_endpoints_a_node():
    answer = ask("out-of-band", ROW).answer
    assert answer.values["endpoints"].value == 1280 * 4 + 800 + 640
    assert answer.values["endpoints_per_node"].value == pytest.approx(5.125)
    assert sum(row["ports"].value for row in answer.table) == 6560
    assert any("No switch, router or cable here carries traffic" in note for note in answer.notes)


@pytest.mark.proves("S018")
def test_the_switch_plan_has_a_port_for_every_endpoint_and_two_ways_out_of_each_switch():
    values = {k: v.value for k, v in ask("out-of-band", ROW).answer.values.items()}
    assert values["access_switches"] == 137  # of 48 ports
    assert values["collecting_switches"] == 10  # five pairs of 32
    assert values["cables"] == 6560 + 2 * 137 + 2 * 10
    assert values["switches_needed"] == 137 + 10 + 2


@pytest.mark.proves("S018")
def test_every_class_has_a_subnet_with_room_to_grow_and_all_fit_the_prefix_of_the_site():
    answer = ask("out-of-band", ROW | {"growth": "2"}).answer
    site = ipaddress.ip_network(f"10.0.0.0/{answer.values['prefix_length'].value:.0f}")
    free = [site]
    for row in sorted(answer.table, key=lambda row: row["prefix"].value):
        length = int(row["prefix"].value)
        block = free.pop(0)
        subnet = next(block.subnets(new_prefix=length))
        assert subnet.num_addresses - 3 >= 2 * row["ports"].value
        free = sorted([*block.address_exclude(subnet), *free]) if block != subnet else free


@pytest.mark.proves("S018")
def test_every_class_says_who_may_connect_and_the_policy_changes_it():
    by_bastion = ask("out-of-band", ROW).answer
    by_vpn = ask("out-of-band", ROW | {"access": "vpn"}).answer
    for one, other in zip(by_bastion.table, by_vpn.table, strict=True):
        assert "bastion" in one["may connect"]
        assert "VPN" in other["may connect"]
    assert by_bastion.table[4]["may connect"].startswith("facility controllers")
    assert "Nothing comes from a tenant's host" in by_bastion.notes[0]
    assert by_bastion.notes[0] != by_vpn.notes[0]
