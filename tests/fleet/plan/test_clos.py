"""Port arithmetic, against fabrics built cable by cable and their maximal flow."""

import random
from itertools import pairwise

import pytest
from tests.fleet.plan.max_flow import Network, flow_between, ports_used, spread

from ridgeline.catalog.network import parts
from ridgeline.errors import CatalogError, SpecError
from ridgeline.fleet.plan.clos import SWITCHES
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()


def plan(**given):
    return {k: v.value for k, v in ask("clos", given).answer.values.items()}


def built(endpoints, radix, oversubscription=1):
    """Endpoints and cables of the fabric that the plan counts, plugged in one by one."""
    found = plan(endpoints=endpoints, radix=radix, oversubscription=str(oversubscription))
    down = radix * oversubscription // (1 + oversubscription)
    leaves = [("leaf", n) for n in range(int(found["leaves"]))]
    left, hosts = endpoints, {}
    for leaf in leaves:
        hosts[leaf] = min(down, left)
        left -= hosts[leaf]
    assert left == 0, "the leaves of the plan have no port for some endpoint"
    tops = [("top", n) for n in range(int(found["top_switches"]))]
    if found["tiers"] == 2:
        return found, hosts, spread(leaves, radix - down, tops)
    cables, middles, half = {}, 0, radix // 2
    for pod in range(0, len(leaves), half):
        aggregation = [("middle", pod, n) for n in range(half)]
        cables |= spread(leaves[pod : pod + half], half, aggregation)
        middles += half
        for n, middle in enumerate(aggregation):  # number n of every pod meets the same cores
            width = len(tops) // half
            cables |= spread([middle], half, tops[n * width : (n + 1) * width])
    assert middles == found["middle_switches"]
    return found, hosts, cables


def halves(hosts, generator):
    """A random half of the endpoints sends to the other half."""
    everyone = [leaf for leaf, n in hosts.items() for _ in range(n)]
    generator.shuffle(everyone)
    half = len(everyone) // 2
    count = {True: {}, False: {}}
    for index, leaf in enumerate(everyone):
        side = count[index < half]
        side[leaf] = side.get(leaf, 0) + 1
    return count[True], count[False], half


def block(hosts):
    """The worst case: whole leaves send to whole leaves, so that everything goes up."""
    leaves = list(hosts)
    cut = len(leaves) // 2
    return {leaf: hosts[leaf] for leaf in leaves[:cut]}, {
        leaf: hosts[leaf] for leaf in leaves[cut:]
    }


def test_dinic_agrees_with_a_flow_known_by_hand():
    graph = Network()
    rooms = {("s", "a"): 3, ("s", "b"): 2, ("a", "b"): 1, ("a", "t"): 2, ("b", "t"): 3}
    for (one, other), room in rooms.items():
        graph.edge(one, other, room)
    assert graph.max_flow("s", "t") == 5
    line = Network()
    for one, other in pairwise("sabt"):
        line.cable(one, other, 4)
    assert line.max_flow("s", "t") == 4


@pytest.mark.proves("S100")
def test_two_tiers_of_64_ports_carry_all_of_2048_endpoints_and_no_more():
    found, hosts, cables = built(2048, 64)
    assert found["tiers"] == 2
    assert found["two_tier_most"] == 2048
    assert (found["leaves"], found["top_switches"], found["cables"]) == (64, 32, 4096)
    assert max(ports_used(cables, hosts).values()) == 64
    senders, receivers = block(hosts)
    assert flow_between(cables, senders, receivers) == 1024
    generator = random.Random(1)
    for _ in range(5):
        senders, receivers, half = halves(hosts, generator)
        assert flow_between(cables, senders, receivers) == half
    assert plan(endpoints=2049, radix=64)["tiers"] == 3


@pytest.mark.proves("S100")
def test_no_way_to_split_a_64_port_leaf_reaches_4096_at_full_bisection():
    reach = {}
    for down in range(1, 64):  # a spine of 64 ports reaches 64 leaves
        leaves, up = [("leaf", n) for n in range(64)], 64 - down
        cables = spread(leaves, up, [("spine", n) for n in range(up)])
        hosts = dict.fromkeys(leaves, down)
        assert max(ports_used(cables, hosts).values()) <= 64
        if flow_between(cables, *block(hosts)) == down * 32:
            reach[down] = down * 64
    assert max(reach.values()) == 2048
    assert plan(endpoints=4032, radix=64, oversubscription="63")["two_tier_most"] == 63 * 64
    # 4,096 is right only where the spines have twice the ports of the leaves.
    assert plan(endpoints=4096, radix=64, top_radix=128)["tiers"] == 2
    notes = " ".join(ask("clos", {}).answer.notes)
    assert "4,096" in notes
    assert "2,048" in notes


@pytest.mark.proves("S100")
@pytest.mark.parametrize(
    ("endpoints", "radix", "oversubscription"),
    [(8, 4, 1), (32, 8, 1), (128, 16, 1), (24, 6, 2), (48, 8, 3), (96, 12, 2), (512, 64, 1)],
)
def test_the_built_fabric_of_two_tiers_carries_what_the_plan_says(
    endpoints, radix, oversubscription
):
    found, hosts, cables = built(endpoints, radix, oversubscription)
    assert found["tiers"] == 2
    assert max(ports_used(cables, hosts).values()) <= radix
    assert sum(cables.values()) + endpoints == found["cables"]
    assert found["slowdown"] == oversubscription
    assert flow_between(cables, *block(hosts)) == endpoints / 2 / oversubscription
    generator = random.Random(radix)
    for _ in range(10):
        senders, receivers, half = halves(hosts, generator)
        assert half / oversubscription <= flow_between(cables, senders, receivers) <= half


@pytest.mark.proves("S100")
@pytest.mark.parametrize(
    ("endpoints", "radix"), [(16, 4), (54, 6), (128, 8), (64, 8), (432, 12), (1024, 16)]
)
def test_the_built_fabric_of_three_tiers_carries_any_half_to_the_other(endpoints, radix):
    found, hosts, cables = built(endpoints, radix)
    assert found["tiers"] == 3
    assert endpoints <= found["three_tier_most"] == radix**3 / 4
    assert max(ports_used(cables, hosts).values()) <= radix
    assert sum(cables.values()) + endpoints == found["cables"] == 3 * endpoints
    assert flow_between(cables, *block(hosts)) == endpoints / 2
    generator = random.Random(radix)
    for _ in range(10):
        senders, receivers, half = halves(hosts, generator)
        assert flow_between(cables, senders, receivers) == half


def test_the_bisection_in_bits_is_half_the_endpoints_over_the_oversubscription():
    answer = ask("clos", {"endpoints": 2048, "oversubscription": "1"}).answer
    assert answer.values["bisection_bytes_per_s"].to("Tb/s") == pytest.approx(1024 * 0.4)


def test_uplinks_that_do_not_divide_over_the_spines_are_told_and_cost_bandwidth():
    asked = ask("clos", {"endpoints": 320})
    assert "32 uplinks do not divide over 5 spines" in " ".join(asked.answer.notes)
    leaves, spines = [("leaf", n) for n in range(10)], [("spine", n) for n in range(5)]
    # Six links from each leaf to each spine: 30 of 32 carry.
    even = {(leaf, spine): 6 for leaf in leaves for spine in spines}
    hosts = dict.fromkeys(leaves, 32)
    assert flow_between(even, *block(hosts)) == 150 < 160


def test_a_fabric_within_one_switch_has_no_spine():
    found = plan(endpoints=40, radix=64)
    assert (found["tiers"], found["switches"], found["cables"], found["hops"]) == (1, 1, 40, 1)


def test_more_endpoints_than_three_tiers_reach_are_refused_with_a_remedy():
    with pytest.raises(SpecError) as error:
        ask("clos", {"endpoints": 70_000})
    assert "65,536" in error.value.problem
    assert error.value.where == "endpoints"
    assert error.value.remedy


def test_traffic_that_stays_under_its_leaf_does_not_feel_oversubscription():
    crossing = plan(endpoints=512, oversubscription="3", crossing_share="100%")["slowdown"]
    local = plan(endpoints=512, oversubscription="3", crossing_share="20%")["slowdown"]
    assert (crossing, local) == (3, 1)


def test_a_switch_of_the_catalog_has_its_ports_at_the_endpoints_rate():
    at_400 = plan(endpoints=8192, switch="spectrum-4-sn5600", link_bytes_per_s="400 Gb/s")
    assert (at_400["two_tier_most"], at_400["tiers"], at_400["switches"]) == (8192, 2, 192)
    at_800 = plan(endpoints=8192, switch="spectrum-4-sn5600", link_bytes_per_s="800 Gb/s")
    assert (at_800["two_tier_most"], at_800["tiers"], at_800["switches"]) == (2048, 3, 640)
    with pytest.raises(CatalogError) as error:
        ask("clos", {"switch": "quantum-2-qm9700", "link_bytes_per_s": "800 Gb/s"})
    assert "400 Gb/s" in error.value.remedy


def test_every_switch_of_the_catalog_can_be_asked_for():
    assert {part.id for part in parts() if part.kind == "switch"} == set(SWITCHES)


def test_a_third_tier_points_to_the_plan_that_compares_it_and_two_tiers_do_not():
    def pointed(**given):
        return [note for note in ask("clos", given).answer.notes if "fabric-tiers" in note]

    [note] = pointed(endpoints=10_240, radix=64)
    words = note.split("ridgeline plan fabric-tiers ")[1].split()
    asked = ask("fabric-tiers", {words[0][2:]: words[1], words[2][2:]: words[3]})
    assert asked.inputs["endpoints"].value == 10_240
    assert asked.answer.values["tiers"].value == 3
    assert not pointed(endpoints=2048, radix=64)
    assert pointed(endpoints=2049, radix=64)
