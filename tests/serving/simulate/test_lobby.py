"""What has to be loaded before a request can run: its adapter, and its cached beginning."""

import dataclasses
import json
from dataclasses import replace

import numpy as np
import pytest
from worlds import model

from ridgeline.errors import SpecError
from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.policy.limits import Limits
from ridgeline.serving.simulate.adapters import Adapters
from ridgeline.serving.simulate.asked import Asked, End
from ridgeline.serving.simulate.chances import Chances
from ridgeline.serving.simulate.clients import Manners, OpenLoop
from ridgeline.serving.simulate.log import Log
from ridgeline.serving.simulate.setup import Engine, Fault, Serving, Tenant, Trouble
from ridgeline.serving.simulate.tiers import Shelves, Tier, Tiers
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request

STEPS = Plain(0.01, 0.0, 10_000.0)
#: 1,000 bytes a token, room for 100 blocks of 16.
SMALL = Machine(STEPS, 1600, 1000.0)
LARGE = Machine(STEPS, 160_000, 1000.0)


def run(engine, requests, *, manners=None, log=None, **changes):
    clients = OpenLoop(requests, "chat", block_tokens=16, manners=manners)
    return simulate(Serving((model(engine=engine, **changes),)), clients, log)


def by_number(outcome, name):
    return outcome.columns[name][np.argsort(outcome.columns["number"])]


def ttft_s(outcome):
    return outcome.ttft_s()[np.argsort(outcome.columns["number"])].tolist()


# Adapters. Who uses which is drawn; with a share of 1 it is the same for all.


def of(slots=1, load_s=0.5, read_s=0.0, **shares):
    return Adapters(shares or {"sql": 1.0}, slots, load_s, read_s)


def test_the_first_request_waits_for_its_adapter_and_the_next_finds_it():
    plain = run(Engine(SMALL), [Request(0.0, 100, 5), Request(2.0, 100, 5)])
    found = run(Engine(SMALL, adapters=of()), [Request(0.0, 100, 5), Request(2.0, 100, 5)])
    first, second = np.array(ttft_s(found)) - np.array(ttft_s(plain))
    assert (first, second) == (pytest.approx(0.5), pytest.approx(0.0))


def test_a_step_reads_each_different_adapter_once():
    requests = [Request(0.0, 1, 101)] * 40
    plain, alike, mixed = (
        run(Engine(LARGE, adapters=adapters), requests)
        for adapters in (None, of(3, 0.0, 0.001), of(3, 0.0, 0.001, a=0.4, b=0.3, c=0.3))
    )
    base_s = plain.tpot_s().mean()
    assert alike.tpot_s().mean() - base_s == pytest.approx(0.001, rel=0.01)
    assert mixed.tpot_s().mean() - base_s == pytest.approx(0.003, rel=0.01)


def test_with_one_slot_two_adapters_take_turns_and_nobody_is_left_out():
    requests = [Request(number * 0.2, 10, 20) for number in range(30)]
    shares = {"a": 0.5, "b": 0.5}
    one, two = (run(Engine(SMALL, adapters=of(slots, 0.3, **shares)), requests) for slots in (1, 2))
    assert one.count(End.ANSWERED) == two.count(End.ANSWERED) == 30
    assert one.ttft_s().mean() > 2 * two.ttft_s().mean()


def test_adapters_have_caches_of_their_own():
    requests = [Request(float(number), 160, 2, tuple(range(10))) for number in range(20)]
    alike, mixed = (
        run(Engine(SMALL, adapters=of(8, 0.0, **shares)), requests)
        for shares in ({"a": 1.0}, {f"a{n}": 0.2 for n in range(5)})
    )
    misses = [int((by_number(one, "cached_tokens") == 0).sum()) for one in (alike, mixed)]
    assert misses == [1, 5]


def test_who_was_refused_and_comes_again_has_the_same_adapter_and_cache():
    one = model(engine=Engine(LARGE, adapters=of()))
    serving = Serving((one,), (Tenant("", limits=Limits(concurrent=1)),))
    requests = [Request(0.0, 160, 2, tuple(range(10)))] * 2
    clients = OpenLoop(requests, "chat", block_tokens=16, manners=Manners(retries=3))
    assert by_number(simulate(serving, clients), "cached_tokens").tolist() == [0, 144]


def test_routing_goes_where_the_adapter_is():
    """What replicas hold is in their reports, as it is for the live gateway."""
    shares = {f"a{n}": 0.25 for n in range(4)}
    requests = [Request(5 + number * 0.5, 200, 2) for number in range(200)]
    engine = Engine(LARGE, adapters=of(1, 0.3, **shares))
    loads = {}
    for rule in ("prefix-sticky", "round-robin"):
        lines = []
        run(engine, requests, log=Log(lines.append), replicas=4, rule=rule)
        loads[rule] = sum(json.loads(line)["event"] == "loads" for line in lines)
    assert loads["prefix-sticky"] < loads["round-robin"]


def test_who_leaves_or_dies_in_the_lobby_leaves_nothing_behind():
    requests = [Request(number * 0.1, 10, 20) for number in range(10)]
    engine = Engine(SMALL, adapters=of(1, 2.0, a=0.5, b=0.5), resumes=True)
    left = run(engine, requests, manners=Manners(first_token_s=0.5))
    assert left.count(End.LEFT) == 10
    serving = Serving((model(engine=engine),), faults=(Fault(1.0, Trouble.DIES, "chat"),))
    assert simulate(serving, OpenLoop(requests, "chat")).count(End.ANSWERED) < 10


def test_who_uses_which_is_drawn_by_number_unless_it_says_so():
    adapters, chances = Adapters({"a": 0.5, "b": 0.3}, 1, 0.0), Chances(0)
    drawn = []
    for number in range(2000):
        asked = Asked(number, None, "chat", 10, 10, (1, 2))
        adapters.dress(asked, chances)
        drawn.append(asked.adapter)
        assert (tuple(asked.blocks) == (1, 2)) == (not asked.adapter)
    assert drawn.count("a") / 2000 == pytest.approx(0.5, abs=0.04)
    assert drawn.count("") / 2000 == pytest.approx(0.2, abs=0.04)
    own = Asked(0, None, "chat", 10, 10, (1, 2), adapter="mine")
    adapters.dress(own, chances)
    assert own.adapter == "mine"
    named = list(own.blocks)
    assert named != [1, 2]
    adapters.dress(own, chances)
    assert list(own.blocks) == named, "it comes again"


@pytest.mark.parametrize(
    "wrong", [{"shares": {"a": 0.7, "b": 0.7}}, {"shares": {"": 0.1}}, {"slots": 0}, {"load_s": -1}]
)
def test_what_no_adapters_can_be_is_refused(wrong):
    with pytest.raises(ValueError, match=r"share|slots|base"):
        Adapters(**{"shares": {"a": 1.0}, "slots": 1, "load_s": 0.1, **wrong})


def test_kinds_of_one_name_have_the_same_adapters():
    kinds = (
        model("one", engine=Engine(SMALL, adapters=of()), serves="chat"),
        model("two", engine=Engine(SMALL), serves="chat"),
    )
    with pytest.raises(SpecError, match="adapters"):
        simulate(Serving(kinds), OpenLoop([Request(0.0, 1, 1)], "chat"))


# Tiers. A conversation of 960 tokens, another one that drives it out, and its next turn.

TALK = [
    Request(0.0, 960, 1, tuple(range(60))),
    Request(10.0, 960, 1, tuple(range(100, 160))),
    Request(20.0, 976, 1, tuple(range(60))),
]


def tiered(*order, rule="quicker"):
    return Engine(SMALL, tiers=Tiers(order, rule))


def host(bytes_per_s=1e8, room=1e9, first_s=0.0):
    return Tier("host", room, bytes_per_s, first_s)


def test_what_was_driven_out_is_loaded_where_that_is_quicker():
    """20 blocks are gone, 320,000 bytes: 3.2 ms at 100 MB/s, and 32 ms to compute."""
    computed, loaded = run(Engine(SMALL), TALK), run(tiered(host()), TALK)
    assert by_number(computed, "cached_tokens")[-1] == 40 * 16
    assert by_number(loaded, "cached_tokens")[-1] == 960
    saved_s = ttft_s(computed)[-1] - ttft_s(loaded)[-1]
    assert saved_s == pytest.approx(0.032 - 0.0032, abs=1e-6)


@pytest.mark.parametrize(
    ("tier", "rule", "cached"),
    [
        (host(), "quicker", 960),
        (host(1e6), "quicker", 640),
        (host(1e6), "load", 960),
        (host(), "recompute", 640),
        (host(first_s=0.1), "quicker", 640),
        (host(room=16_000.0 * 12), "quicker", 832),  # the end was driven out first, and is gone
    ],
)
def test_rule_bandwidth_latency_and_room_decide(tier, rule, cached):
    found = run(tiered(tier, rule=rule), TALK)
    assert by_number(found, "cached_tokens")[-1] == cached


def test_what_a_tier_has_no_room_for_goes_to_the_next():
    near = host(room=16_000.0 * 12)
    both = run(tiered(near, Tier("disk", 1e9, 5e7)), TALK)
    assert by_number(both, "cached_tokens")[-1] == 960


def test_others_compute_while_one_waits_for_its_cache():
    """A load of 3.2 s does not hold up who comes meanwhile."""
    requests = [*TALK, Request(20.1, 10, 5)]
    found = run(tiered(host(1e5), rule="load"), requests)
    assert ttft_s(found)[2] > 3.2
    assert ttft_s(found)[3] < 0.05


def test_a_link_loads_for_one_after_the_other():
    requests = [*TALK[:2], replace(TALK[2]), replace(TALK[2], prompt_tokens=970)]
    found = run(tiered(host(1e5), rule="load"), requests)
    assert ttft_s(found)[3] > ttft_s(found)[2] + 3.0


def test_tiers_need_a_prefix_cache_and_the_size_of_a_token():
    with pytest.raises(SpecError, match="tiers"):
        run(replace(tiered(host()), prefix_caching=False), TALK)
    with pytest.raises(ValueError, match="bytes"):
        Shelves([host()], 0.0)
    with pytest.raises(ValueError, match="holds nothing"):
        Tier("host", 0.0, 1.0)


@pytest.mark.parametrize("field", [one.name for one in dataclasses.fields(Tier)][1:])
def test_no_option_of_a_tier_is_accepted_and_then_ignored(field):
    other = {"bytes": 16_000.0, "bytes_per_s": 1e6, "first_s": 0.005}[field]
    told = run(tiered(host()), TALK)
    assert run(tiered(replace(host(), **{field: other})), TALK).digest != told.digest
