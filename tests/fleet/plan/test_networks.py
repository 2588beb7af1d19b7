"""Three networks, against a bill made by hand and the list of every cable."""

import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

#: 64 nodes of 8 + 2 cards and 4 managed ports, 8 storage nodes of 2 cards and 2 managed ports.
NODES_64 = {
    "nodes": 64, "back_nics": 8, "front_nics": 2, "managed_ports": 4,
    "storage_nodes": 8, "storage_managed_ports": 2, "nodes_per_pdu": 2,
    "radix": 64, "front_radix": 64, "access_ports": 48, "collecting_ports": 32,
}  # fmt: skip

#: Made by hand: what stands in the racks. Out of band: 256 ports of nodes, 16 of storage, 32 of
#: switches and 36 power units are 340, on 8 switches of 48, one pair above them and two routers.
BY_HAND = {
    "back end": {"ports": 512, "switches": 16 + 8, "cables": 512 + 512},
    "front end": {"ports": 144, "switches": 5 + 3, "cables": 144 + 5 * 32},
    "out of band": {"ports": 340, "switches": 8 + 2 + 2, "cables": 340 + 16 + 4},
}


def rows(**more):
    return {row["network"]: row for row in ask("cluster-networks", NODES_64 | more).answer.table}


@pytest.mark.proves("S106")
def test_counts_for_64_nodes_equal_the_bill_made_by_hand():
    found = rows()
    assert list(found) == list(BY_HAND)
    for network, counts in BY_HAND.items():
        for key, value in counts.items():
            assert found[network][key].value == value, (network, key)
    values = ask("cluster-networks", NODES_64).answer.values
    assert values["switches"].value == 24 + 8 + 12
    assert values["cables"].value == 1024 + 304 + 360
    assert values["ports"].value == 512 + 144 + 340


@pytest.mark.proves("S106")
def test_each_network_s_cost_is_its_switches_modules_and_cables():
    found = rows(
        back_switch_usd="30000 USD",
        transceiver_usd="1000 USD",
        front_switch_usd="20000 USD",
        front_transceiver_usd="400 USD",
        management_switch_usd="2000 USD",
        copper_usd="10 USD",
    )
    assert found["back end"]["cost"].value == 24 * 30_000 + 2048 * 1000
    assert found["front end"]["cost"].value == 8 * 20_000 + 608 * 400
    assert found["out of band"]["cost"].value == 12 * 2000 + 360 * 10


def test_an_oversubscribed_front_end_takes_fewer_switches():
    assert rows(front_oversubscription="3")["front end"]["switches"].value == 3 + 1
