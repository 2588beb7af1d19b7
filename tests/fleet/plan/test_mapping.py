"""The order of ranks, against groups listed rank by rank."""

from collections import Counter
from itertools import permutations, product

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

AXES = ("tensor", "context", "pipeline", "data")
LINK, NIC = 450e9, 50e9
LAYOUTS = [
    ("llama-3.1-70b", 8, 1, 4, 8),
    ("llama-3.1-70b", 4, 1, 4, 4),
    ("llama-3.1-70b", 2, 1, 8, 8),
    ("llama-3.1-70b", 8, 1, 1, 16),
    ("llama-3.1-70b", 4, 2, 2, 4),
    ("llama-3.1-70b", 8, 2, 4, 4),
    ("llama-3.1-8b", 2, 1, 1, 64),
    ("llama-3.1-8b", 4, 1, 2, 16),
    ("llama-3.1-405b", 8, 1, 16, 8),
    ("llama-3.1-405b", 8, 16, 16, 4),
]


def answer_for(layout, **more):
    name, tensor, context, pipeline, data = layout
    given = {
        "model": name,
        "accelerator": "h100-sxm",
        "tensor_parallel": tensor,
        "context_parallel": context,
        "pipeline_parallel": pipeline,
        "data_parallel": data,
        "nic_bytes_per_s": "400 Gb/s",
    }
    return ask("rank-mapping", given | more).answer


def nodes_of_groups(order, degree, axis, node=8):
    """For each group of an axis: how many of its ranks sit in each node, listed rank by rank."""
    groups = {}
    # The first axis of the order varies fastest.
    for rank, at in enumerate(product(*(range(degree[one]) for one in reversed(order)))):
        place = dict(zip(reversed(order), at, strict=True))
        rest = tuple(place[one] for one in order if one != axis)
        groups.setdefault(rest, Counter())[rank // node] += 1
    return list(groups.values())


def priced(order, degree, sent):
    """Network seconds of one order: each axis at the pace of its worst group."""
    total = 0.0
    for axis in order:
        worst = 0.0
        for nodes in nodes_of_groups(order, degree, axis):
            cards = 1 if axis == "pipeline" else min(nodes.values())
            rate = LINK if len(nodes) == 1 else min(LINK, cards * NIC)
            worst = max(worst, sent[axis] / rate)
        total += worst
    return total


@pytest.mark.proves("S104")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensor_ranks_share_a_node_and_best_and_worst_order_are_those_of_all_orders_listed(layout):
    answer = answer_for(layout)
    degree = {axis: n for axis, n in zip(AXES, layout[1:], strict=True) if n > 1}
    sent = {axis: answer.values[f"{axis}_bytes"].value for axis in degree}
    prices = {order: priced(order, degree, sent) for order in permutations(degree)}
    assert answer.values["network_s"].value == pytest.approx(min(prices.values()))
    assert answer.values["worst_s"].value == pytest.approx(max(prices.values()))
    best = tuple(answer.table[0]["order"].split(", "))
    assert prices[best] == min(prices.values())
    assert all(len(nodes) == 1 for nodes in nodes_of_groups(best, degree, "tensor"))
    for row in answer.table:
        assert row["network"].value == pytest.approx(prices[tuple(row["order"].split(", "))])


@pytest.mark.proves("S104")
def test_links_are_9_times_apart_per_direction_and_a_stranded_tensor_axis_costs_just_that():
    answer = answer_for(LAYOUTS[0])
    assert answer.values["link_rate_ratio"].value == 9
    assert any("18x" in note and "one direction" in note for note in answer.notes)
    inside = answer.values["best_tensor_s"].value
    assert inside == pytest.approx(answer.values["tensor_bytes"].value / LINK)
    wide = answer_for(("llama-3.1-70b", 8, 1, 1, 8))
    outside = wide.values["worst_s"].value - wide.values["data_bytes"].value / LINK
    assert outside / wide.values["best_tensor_s"].value == pytest.approx(9)


@pytest.mark.proves("S104")
def test_traffic_of_each_axis_is_counted_from_the_model():
    answer = answer_for(("llama-3.1-70b", 8, 2, 4, 4), micro_batches=16, sequence_tokens="8k")
    values = {k: v.value for k, v in answer.values.items()}
    activation = 8192 / 2 * 8192 * 2
    gradients = 70_553_706_496 * 2 / 32
    assert values["tensor_bytes"] == pytest.approx(2 * 7 / 8 * activation * 20 * 16 * 4)
    assert values["pipeline_bytes"] == pytest.approx(2 * 16 * activation / 8)
    assert values["data_bytes"] == pytest.approx(2 * 3 / 4 * gradients / 2)
    kv = 2 * 8 * 128 * 2 * 8192 / 8
    assert values["context_bytes"] == pytest.approx(kv / 2 * 20 * 16 * 3 + gradients)


def test_a_tensor_axis_wider_than_a_node_is_told():
    assert any(
        "wider than a node" in note for note in answer_for(("llama-3.1-70b", 16, 1, 2, 4)).notes
    )


def test_within_one_node_every_order_costs_the_same():
    answer = answer_for(("llama-3.1-70b", 4, 1, 1, 2))
    assert answer.values["worst_ratio"].value == 1


@pytest.mark.parametrize(
    ("layout", "field"),
    [
        (("llama-3.1-70b", 6, 1, 4, 4), "tensor-parallel"),
        (("llama-3.1-70b", 4, 1, 1, 3), "data-parallel"),
        (("llama-3.1-70b", 2, 1, 6, 6), "tensor-parallel"),
        (("deepseek-v3", 8, 1, 4, 4), "model"),
    ],
)
def test_layouts_that_cannot_be_placed_are_refused(layout, field):
    with pytest.raises(SpecError) as error:
        answer_for(layout)
    assert error.value.where == field
    assert error.value.remedy
