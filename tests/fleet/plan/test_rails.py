"""Rail-optimised fabrics, against a fabric wired card by card and walked."""

from collections import Counter, defaultdict, deque

import pytest
from tests.fleet.plan.max_flow import flow_between, spread

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

#: The row's inputs.
ROW = {"nodes": 64, "rails": 8, "radix": 64, "nic_bytes_per_s": "400 Gb/s"}


def wired(nodes, rails, down, spines):
    """The leaf of each card, and the cables between leaves and spines."""
    leaf = {
        (node, rail): ("leaf", rail, node // down) for node in range(nodes) for rail in range(rails)
    }
    leaves = sorted(set(leaf.values()))
    return leaf, spread(leaves, down, [("spine", n) for n in range(spines)])


def switches_between(leaf, cables):
    """Switches on the shortest path from one leaf to every other, itself included."""
    near = defaultdict(set)
    for one, other in cables:
        near[one].add(other)
        near[other].add(one)
    seen, waiting = {leaf: 1}, deque([leaf])
    while waiting:
        here = waiting.popleft()
        for other in near[here]:
            if other not in seen:
                seen[other] = seen[here] + 1
                waiting.append(other)
    return seen


@pytest.mark.proves("S008")
def test_512_ports_of_64_nodes_take_16_leaves_8_spines_and_1024_cables_at_1_to_1():
    values = ask("rail-fabric", ROW).answer.values
    assert values["endpoints"].value == 512
    assert values["leaves"].value == 16
    assert values["spines"].value == 8
    assert values["cables"].value == 1024
    assert values["oversubscription_made"].value == 1
    assert values["injection_bytes_per_s"].to("Tb/s") == pytest.approx(204.8)
    leaf, cables = wired(64, 8, 32, 8)
    assert len(leaf) + sum(cables.values()) == 1024
    first = {one: 32 for one in {*leaf.values()} if one[2] == 0}
    second = {one: 32 for one in {*leaf.values()} if one[2] == 1}
    assert flow_between(cables, first, second) == 256  # half of the ports, all of their rate


@pytest.mark.proves("S008")
def test_about_half_of_the_pairs_of_one_rail_cross_a_spine_as_every_pair_walked_shows():
    asked = ask("rail-fabric", ROW)
    leaf, cables = wired(64, 8, 32, 8)
    hops = {one: switches_between(one, cables) for one in set(leaf.values())}
    classes = Counter()
    for card, one in leaf.items():
        for peer, other in leaf.items():
            if card == peer:
                continue
            far = 0 if card[0] == peer[0] else hops[one][other]
            classes[far, card[1] == peer[1]] += 1
    within = classes[1, True] + classes[3, True]
    crossing = asked.answer.values["same_rail_crossing_share"].value
    assert crossing == pytest.approx(classes[3, True] / within)
    assert crossing == pytest.approx(0.5, abs=0.01)
    assert any("cross a spine" in note for note in asked.answer.notes)
    rows = asked.answer.table
    pairs = sum(classes.values())
    found = [(row["hops"].value, row["share"].value) for row in rows[:4]]
    assert found == [
        (0, pytest.approx(classes[0, False] / pairs)),
        (1, pytest.approx(classes[1, True] / pairs)),
        (3, pytest.approx(classes[3, True] / pairs)),
        (3, pytest.approx((classes[3, False] + classes[1, False]) / pairs)),
    ]


@pytest.mark.parametrize("nodes", [2, 31, 32, 33, 40, 100, 256])
def test_the_share_of_crossing_pairs_is_that_of_the_pairs_counted(nodes):
    values = ask("rail-fabric", {"nodes": nodes}).answer.values
    pairs = [(a // 32, b // 32) for a in range(nodes) for b in range(nodes) if a != b]
    share = sum(one != other for one, other in pairs) / len(pairs)
    assert values["same_rail_crossing_share"].value == pytest.approx(share)
    assert values["leaves"].value == 8 * -(-nodes // 32)


def test_within_one_leaf_of_nodes_no_pair_of_a_rail_crosses_and_no_warning_is_given():
    asked = ask("rail-fabric", {"nodes": 32})
    assert asked.answer.values["same_rail_crossing_share"].value == 0
    assert not any("cross a spine" in note for note in asked.answer.notes)


def test_nvlink_is_nine_times_the_card_in_one_direction_and_the_note_says_why_not_18():
    asked = ask("rail-fabric", ROW | {"accelerator": "h100-sxm"})
    assert asked.answer.values["link_rate_ratio"].value == 9
    assert any("18 x" in note and "both directions" in note for note in asked.answer.notes)


def test_more_leaves_than_a_spine_has_ports_are_refused():
    with pytest.raises(SpecError) as error:
        ask("rail-fabric", {"nodes": 257})
    assert error.value.where == "nodes"
    assert "2,048" in error.value.remedy
