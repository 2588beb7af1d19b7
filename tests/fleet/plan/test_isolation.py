"""Tenants on nodes against every way to place them, and what separates them from each other."""

import itertools
import math
import random

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

#: Where a MIG profile may start, and how many memory slices it covers there.
STARTS = {1: range(7), 2: (0, 2, 4), 3: (0, 4), 4: (0,)}
COVERS = {1: 1, 2: 2, 3: 4, 4: 4}


def isolate(tenants, **given):
    return ask("tenant-isolation", {"tenants": tenants} | given).answer


def mix(seed):
    chance = random.Random(seed)
    wishes = {"team": [0.1, 0.25, 0.4, 0.5, 1, 2, 3, 5, 9], "customer": [1, 2, 3, 4, 5, 7, 10],
              "root": [1, 8, 9]}  # fmt: skip
    found = []
    for k in range(chance.randint(1, 7)):
        trust = chance.choice(list(wishes))
        found.append((f"t{k}", chance.choice(wishes[trust]), trust))
    return found


def partitions(items):
    """Every way to put items into groups."""
    if not items:
        yield []
        return
    first, *rest = items
    for groups in partitions(rest):
        for k, group in enumerate(groups):
            yield [*groups[:k], [first, *group], *groups[k + 1 :]]
        yield [[first], *groups]


def fits_on_one_gpu(profiles):
    """Whether the slices have places on one device that do not overlap."""
    for starts in itertools.product(*(STARTS[profile] for profile in profiles)):
        used = [slot for profile, at in zip(profiles, starts, strict=True)
                for slot in range(at, at + COVERS[profile])]  # fmt: skip
        if len(used) == len(set(used)):
            return True
    return not profiles


def fewest(items, fits):
    return min(len(groups) for groups in partitions(items) if all(fits(g) for g in groups))


def nodes_by_brute_force(tenants):
    """Teams, customers and root tenants on nodes of 8, every grouping of each pool tried."""
    nodes = 0
    for pool in ("team", "customer", "root"):
        slices, rests = [], []
        for _, gpus, trust in tenants:
            if trust != pool:
                continue
            if pool == "root":
                nodes += math.ceil(gpus / 8)
            elif pool == "team" and gpus <= 4 / 7:
                slices.append(next(p for p in STARTS if p / 7 >= gpus))
            else:
                whole, rest = divmod(math.ceil(gpus), 8)
                if pool == "customer" and rest:
                    rest = next(size for size in (1, 2, 4, 8) if size >= rest)
                nodes += whole + (rest == 8)
                rests += [rest] if 0 < rest < 8 else []
        shared = fewest(slices, fits_on_one_gpu)
        nodes += fewest([*rests, *[1] * shared], lambda group: sum(group) <= 8)
    return nodes


@pytest.mark.proves("S024")
@pytest.mark.parametrize("seed", range(50))
def test_the_stranded_share_is_that_of_a_brute_force_packing(seed):
    tenants = mix(seed)
    answer = isolate("; ".join(f"{name}:{gpus} {trust}" for name, gpus, trust in tenants))
    nodes = nodes_by_brute_force(tenants)
    assert answer.values["nodes"].value == nodes
    stranded = 1 - sum(gpus for _, gpus, _ in tenants) / (8 * nodes)
    assert answer.values["stranded_share"].value == pytest.approx(stranded)


@pytest.mark.proves("S024")
def test_the_map_says_for_each_tenant_its_unit_its_nodes_and_what_risk_is_left():
    rows = {r["tenant"]: r for r in isolate("a:0.5 team; b:3 customer; c:12 root").table}
    assert {name: row["unit"] for name, row in rows.items()} == {
        "a": "slice", "b": "GPU", "c": "node"}  # fmt: skip
    assert rows["b"]["takes"].value == 4  # an NVLink partition
    assert rows["c"]["nodes"] == "3-4"
    assert all(row["residual risk"] for row in rows.values())


def test_tenants_of_different_trust_never_share_a_node():
    rows = isolate("a:1 team; b:1 customer; c:1 root; d:1 team").table
    nodes = {row["tenant"]: row["nodes"] for row in rows}
    assert nodes["a"] == nodes["d"]
    assert len({nodes[name] for name in "abc"}) == 3
    assert next(row for row in rows if row["tenant"] == "a")["beside"] == "d"


def test_no_two_tenants_hold_more_of_a_node_than_it_has():
    rng = random.Random(7)
    sizes = [rng.randint(1, 7) for _ in range(60)]
    answer = isolate("; ".join(f"t{k}:{size} team" for k, size in enumerate(sizes)))
    held = {}
    for row in answer.table:
        held[row["nodes"]] = held.get(row["nodes"], 0) + row["takes"].value
    assert max(held.values()) <= 8
    assert len(held) == answer.values["nodes"].value


def test_what_is_rounded_up_and_what_is_left_over_make_up_all_that_is_stranded():
    values = isolate("a:0.4 team; b:3 customer; c:9 root").values
    stranded = values["rounded_up"].value + values["left_over"].value
    assert stranded == pytest.approx(values["held"].value - values["demand"].value)


@pytest.mark.parametrize(
    ("given", "tenant", "unit"),
    [
        ({"mig": "no"}, "a", "GPU"),
        ({"accelerator": "l40s"}, "a", "GPU"),
        ({"nvlink_partitions": "no"}, "b", "node"),
        ({"nic_functions": "no"}, "b", "node"),
    ],
)
def test_a_missing_feature_makes_the_unit_larger(given, tenant, unit):
    rows = {row["tenant"]: row for row in isolate("a:0.5 team; b:3 customer", **given).table}
    assert rows[tenant]["unit"] == unit


def test_without_a_partitioned_fabric_strangers_are_not_isolated():
    answer = isolate("a:1 team; b:1 customer", fabric_partitions="no")
    assert not answer.ok
    assert any("b" in note and "fabric" in note for note in answer.notes)
    assert isolate("a:1 team", fabric_partitions="no").ok


@pytest.mark.parametrize(
    "tenants", ["", "a:1", "a:1 friend", "a:1 team; a:2 team", "a:0 team", "a:1.2.3 team", "1 team"]
)
def test_a_text_that_is_no_list_of_tenants_is_refused(tenants):
    with pytest.raises(SpecError) as caught:
        isolate(tenants)
    assert caught.value.where == "tenants"
    assert caught.value.remedy
