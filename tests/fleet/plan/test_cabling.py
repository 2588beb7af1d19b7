"""The list of every cable: nothing is plugged in twice, and no network touches another."""

from collections import Counter, defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.fleet.plan.cabling import cable_list
from ridgeline.fleet.plan.networks import networks
from ridgeline.platform.plan import topics
from ridgeline.quantity import given as number
from ridgeline.topics import ask

topics()

NODES_64 = (64, 8, 2, 4, 8, 2, 2, 64, 64, 48, 32, 1)


def laid(*counts):
    """The counted networks and their cables."""
    made = networks(*(number(n) for n in counts))
    _, back, front, managed, _, storage_managed, *_ = counts
    return made, cable_list(made, back, front, managed, storage_managed)


def switches_of(cables, network):
    """Devices that forward for a network: whatever is the upper end of one of its cables."""
    return {cable.b for cable in cables if cable.network == network}


def ports_in_use(cables, network):
    """Ports of each switch of a network with a cable of that network in them."""
    used = Counter()
    switches = switches_of(cables, network)
    for cable in cables:
        if cable.network == network:
            used.update({cable.a, cable.b} & switches)
    return used


def check_cables(made, cables, radix=64, front_radix=64):
    assert max(ports_in_use(cables, "back end").values()) <= radix
    assert max(ports_in_use(cables, "front end").values()) <= front_radix
    for switch, used in ports_in_use(cables, "out of band").items():
        uplinks = 0 if "router" in switch else 2
        assert used - uplinks <= (48 if "access" in switch else 32)
    ends = Counter()
    for cable in cables:
        ends[cable.a, cable.a_port] += 1
        ends[cable.b, cable.b_port] += 1
    assert max(ends.values()) == 1, "a port has two cables"
    counted = Counter(cable.network for cable in cables)
    assert counted["back end"] == made.back.cables.value
    assert counted["front end"] == made.front.cables.value
    assert counted["out of band"] == made.management.cables.value
    forwarding = {network: switches_of(cables, network) for network in counted}
    assert len(forwarding["back end"]) == made.back.switches.value
    assert len(forwarding["front end"]) == made.front.switches.value
    assert len(forwarding["out of band"]) == made.management.switches.value
    names = list(forwarding)
    for index, one in enumerate(names):
        for other in names[index + 1 :]:
            assert not forwarding[one] & forwarding[other], f"{one} and {other} share a switch"
    links = defaultdict(set)
    for cable in cables:
        links[frozenset(((cable.a, cable.a_port), (cable.b, cable.b_port)))].add(cable.network)
    assert all(len(using) == 1 for using in links.values()), "two networks share a link"


def reach(cables, network):
    """Everything that hangs together over one network's cables, from its first device."""
    near = defaultdict(set)
    for cable in cables:
        if cable.network == network:
            near[cable.a].add(cable.b)
            near[cable.b].add(cable.a)
    seen, waiting = set(), [next(iter(near))]
    while waiting:
        here = waiting.pop()
        if here not in seen:
            seen.add(here)
            waiting.extend(near[here])
    return seen, set(near)


@pytest.mark.proves("S106")
def test_no_two_networks_of_64_nodes_share_a_link_a_port_or_a_switch():
    made, cables = laid(*NODES_64)
    check_cables(made, cables)
    assert len(cables) == 1688
    for network in ("back end", "front end", "out of band"):
        seen, everything = reach(cables, network)
        assert seen == everything, f"{network} is in pieces"


@pytest.mark.proves("S018")
def test_out_of_band_has_no_device_in_common_with_the_back_end_at_1280_nodes():
    made, cables = laid(1280, 8, 2, 4, 0, 2, 2, 64, 64, 48, 32, 1)
    assert made.back.switches.value == 800
    check_cables(made, cables)
    forwarding = switches_of(cables, "out of band")
    back = {cable for cable in cables if cable.network == "back end"}
    touched = {cable.a for cable in back} | {cable.b for cable in back}
    assert not forwarding & touched
    # A back-end switch is plugged in as a managed thing, once.
    managed = Counter(cable.a for cable in cables if cable.network == "out of band")
    assert all(managed[switch] == 1 for switch in switches_of(cables, "back end"))


@given(
    st.integers(1, 120),
    st.integers(1, 8),
    st.integers(1, 3),
    st.integers(1, 4),
    st.integers(0, 10),
    st.sampled_from([16, 32, 64]),
    st.sampled_from([1, 2, 3]),
)
@settings(max_examples=60, deadline=None)
def test_whatever_the_cluster_the_list_agrees_with_the_counts(
    nodes, back, front, managed, storage, radix, oversubscription
):
    shape = (nodes, back, front, managed, storage, 2, 2, radix, 32, 48, 32, oversubscription)
    check_cables(*laid(*shape), radix, 32)


def test_a_card_of_every_node_comes_before_the_next_card_so_that_rails_share_leaves():
    _, cables = laid(*NODES_64)
    leaf = {(cable.a, cable.a_port): cable.b for cable in cables}
    assert leaf["node-0001", "back-1"] == leaf["node-0032", "back-1"]
    assert leaf["node-0001", "back-1"] != leaf["node-0033", "back-1"]
    assert leaf["node-0001", "back-1"] != leaf["node-0001", "back-2"]


def test_the_topic_lists_the_cables_of_the_network_asked_for():
    table = ask("cable-list", {"network": "out of band", "shown": 500}).answer.table
    assert len(table) == 360
    assert {row["network"] for row in table} == {"out of band"}
    assert len(ask("cable-list", {"shown": 0}).answer.table) == 0
