"""Kinds of replicas, regions, pools of devices and machines on loan, in whole simulations."""

from dataclasses import replace

import numpy as np
import pytest
from worlds import engine, model

from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.policy.scale import Settings, Step
from ridgeline.serving.simulate.asked import End
from ridgeline.serving.simulate.clients import ClosedLoop, Manners, OpenLoop
from ridgeline.serving.simulate.log import Log
from ridgeline.serving.simulate.outcome import Outcome
from ridgeline.serving.simulate.setup import (
    Fault,
    Place,
    Region,
    Scaling,
    Serving,
    Spot,
    Tenant,
    Trouble,
)
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request

SLOW = Machine(Plain(0.03, 0.0, 20_000.0), 40_000)
REGIONS = (Region("eu", {"us": 0.1}), Region("us"))


def some(count: int, *, every_s: float = 0.1, output: int = 20) -> list[Request]:
    return [Request(number * every_s, 100, output) for number in range(count)]


def sent_to(outcome: Outcome) -> list[str]:
    order = np.argsort(outcome.columns["number"])
    return [outcome.names[number] for number in outcome.columns["replica"][order]]


def test_kinds_that_serve_one_name_share_its_requests():
    fast = model("fast", serves="chat", rule="least-load")
    slow = model("slow", serves="chat", engine=engine(machine=SLOW))
    outcome = simulate(Serving((fast, slow)), ClosedLoop(some(60), "chat", 4))
    counts = [sum(name.startswith(kind) for name in sent_to(outcome)) for kind in ("fast", "slow")]
    assert outcome.count(End.ANSWERED) == 60
    assert counts[0] > 1.5 * counts[1], "least load finds the faster one"


def test_the_next_kind_grows_when_the_one_before_it_has_its_most():
    scaling = Scaling(Settings(1, 2, 1.0, up=Step(4, 1.0)))
    first = model("own", serves="chat", scaling=scaling, slots=2)
    second = model(
        "lent", serves="chat", replicas=0, slots=2,
        scaling=Scaling(Settings(0, 4, 1.0, up=Step(4, 1.0))),
    )  # fmt: skip
    for clients, lent in ((2, 0), (12, 4)):
        loop = ClosedLoop(some(20 * clients), "chat", clients)
        outcome = simulate(Serving((first, second)), loop)
        grew = [(name, count) for _, name, count, _ in outcome.scaled]
        assert ("own", 2) in grew
        assert max((count for name, count in grew if name == "lent"), default=0) == lent
        assert outcome.count(End.ANSWERED) == outcome.requests


def test_a_region_answers_its_own_and_the_way_to_another_one_takes_time():
    near, far = (
        model("near", serves="chat", place=Place("eu")),
        model("far", serves="chat", place=Place("us")),
    )
    for models, expected, way_s in (((near, far), "near-0", 0.0), ((far,), "far-0", 0.1)):
        outcome = simulate(Serving(models, regions=REGIONS), OpenLoop(some(1), "chat"))
        assert sent_to(outcome) == [expected]
        assert outcome.ttft_s()[0] == pytest.approx(0.015 + way_s)


def test_a_full_region_sends_to_the_next_one():
    near = model("near", serves="chat", place=Place("eu"), slots=2)
    far = model("far", serves="chat", place=Place("us"))
    outcome = simulate(Serving((near, far), regions=REGIONS), OpenLoop(some(6, every_s=0), "chat"))
    assert sorted(sent_to(outcome)) == ["far-0"] * 4 + ["near-0"] * 2


def test_whose_data_must_stay_waits_or_is_refused_and_goes_nowhere_else():
    near = model("near", serves="chat", place=Place("eu"), slots=1)
    far = model("far", serves="chat", place=Place("us"))
    bound = Tenant("", residency=frozenset({"eu"}))
    serving = Serving((near, far), (bound,), regions=REGIONS)
    assert set(sent_to(simulate(serving, OpenLoop(some(6, every_s=0), "chat")))) == {"near-0"}
    lost = replace(serving, faults=(Fault(0.0, Trouble.LOST, region="eu"),))
    outcome = simulate(lost, OpenLoop(some(3), "chat"))
    assert outcome.count(End.UNREADY) == 3


def test_a_lost_region_cuts_what_it_had_and_comes_back():
    near = model("near", serves="chat", place=Place("eu"), start_s={"start": 1.0})
    far = model("far", serves="chat", place=Place("us"))
    fault = Fault(1.05, Trouble.LOST, lasts_s=2.0, region="eu")
    serving = Serving((near, far), faults=(fault,), regions=REGIONS)
    outcome = simulate(serving, OpenLoop(some(80), "chat"))
    where = np.array(sent_to(outcome))
    at_s = np.sort(outcome.columns["at_ns"]) / 1e9
    assert outcome.count(End.BROKEN) == 2, "they ran there"
    assert set(where[at_s < 1.05]) == {"near-0"}
    assert set(where[(at_s > 1.05) & (at_s < 4)]) == {"far-0"}, "a second to start anew"
    assert set(where[at_s > 4.2]) == {"near-1"}


def test_who_waits_in_a_region_that_is_lost_may_come_again():
    near = model("near", serves="chat", place=Place("eu"), slots=1)
    far = model("far", serves="chat", place=Place("us"), slots=1)
    fault = Fault(0.05, Trouble.LOST, region="eu")
    serving = Serving((near, far), faults=(fault,), regions=REGIONS)
    requests = some(6, every_s=0)
    assert simulate(serving, OpenLoop(requests, "chat")).count(End.UNREADY) == 2
    again = simulate(serving, OpenLoop(requests, "chat", manners=Manners(retries=1)))
    assert (again.count(End.UNREADY), again.count(End.BROKEN)) == (0, 1), "one ran there"


def test_a_start_waits_for_devices_and_costs_nothing_until_then():
    held = model("held", place=Place(pool="gpus", devices=2), drain_s=600.0)
    held = replace(held, scaling=Scaling(Settings(0, 1, 8.0, down_after_s=2.0, zero_after_s=2.0)))
    wanting = model("wanting", place=Place(pool="gpus"), start_s={"start": 1.0})
    events: list[str] = []
    serving = Serving((held, wanting), pools={"gpus": 2})
    outcome = simulate(serving, OpenLoop(some(2, every_s=9.0), "wanting"), Log(events.append))
    assert any('"pends", "who": "wanting-0"' in event for event in events)
    first, second = outcome.replicas
    assert second.there_s == pytest.approx(outcome.lasted_s - first.there_s)


def test_a_machine_on_loan_is_taken_back_after_its_notice():
    lent = model(replicas=2, place=Place(spot=Spot(per_hour=360.0, notice_s=0.1)))
    lent = replace(lent, start_s={"start": 0.5}, rule="round-robin")
    events: list[str] = []
    outcome = simulate(Serving((lent,)), OpenLoop(some(300, output=30), "chat"), Log(events.append))
    reclaims = sum('"reclaimed"' in event for event in events)
    assert 2 <= reclaims <= 14, "six expected in 30 s"
    assert len(outcome.replicas) == 2 + reclaims
    assert 0 < outcome.count(End.BROKEN) <= 4 * reclaims
    whole = replace(lent, place=Place(spot=Spot(360.0, notice_s=10.0)))
    kept = simulate(Serving((whole,)), OpenLoop(some(300, output=30), "chat"))
    assert kept.count(End.ANSWERED) == 300, "who has the time ends what it has"
