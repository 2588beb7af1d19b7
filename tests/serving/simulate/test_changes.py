"""Rollouts and rolling updates in whole simulations."""

from dataclasses import replace

import pytest
from worlds import MACHINE, engine, model

from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.policy.rolling import Rolling
from ridgeline.serving.policy.rollout import Plan
from ridgeline.serving.simulate.asked import End
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.outcome import Outcome
from ridgeline.serving.simulate.setup import Change, Fault, Place, Serving, Trouble
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request, parse_arrivals, parse_sizes, synthetic

SLOWER = Machine(replace(MACHINE.steps, fixed_s=0.0125), MACHINE.kv_tokens)
PLAN = Plan(steps=(0.25, 0.5), keep_s=20.0)


def requests(lasts_s: float, per_s: float = 10.0) -> list[Request]:
    drawn = synthetic(
        parse_arrivals("poisson"), parse_sizes("lognormal:200:0.8", where="p"),
        parse_sizes("lognormal:30:0.8", where="o"), rate_per_s=per_s, seed=1,
    )  # fmt: skip
    found = []
    for one in drawn:
        if one.at_s > lasts_s:
            return found
        found.append(one)
    return found


def changed(
    change: Change, new, *, replicas: int = 4, gpus: int = 8, lasts_s: float = 400.0, **more
) -> Outcome:
    place = Place(pool="gpus")
    old = model("v1", serves="chat", replicas=replicas, place=place, rule="least-load")
    new = replace(new, name="v2", serves="chat", replicas=0, place=place)
    new = replace(new, start_s={"start": 5.0})
    serving = Serving((old, new), changes=(change,), pools={"gpus": gpus}, **more)
    return simulate(serving, OpenLoop(requests(lasts_s), "chat"))


def said(outcome: Outcome) -> str:
    return "\n".join(text for _, _, text in outcome.changed)


def share_of(outcome: Outcome, kind: str, after_s: float) -> float:
    late = outcome.columns["at_ns"] > after_s * 1e9
    names = [outcome.names[number] for number in outcome.columns["replica"][late]]
    return sum(name.startswith(kind) for name in names) / len(names)


def test_an_equal_version_takes_all_requests_step_by_step():
    outcome = changed(Change(10.0, "v1", "v2", PLAN), model())
    text = said(outcome)
    assert "canary: checked" in text
    assert "keeping" in text
    assert text.splitlines()[-1].startswith("done")
    assert share_of(outcome, "v2", 390.0) == 1.0
    assert outcome.count(End.ANSWERED) == outcome.requests, "nobody was cut"
    assert outcome.replicas[0].there_s < 390, "the old ones have left"


def test_a_slower_version_goes_back_and_nobody_gets_it_any_more():
    slow = model(engine=engine(machine=SLOWER))
    outcome = changed(Change(10.0, "v1", "v2", PLAN), slow)
    at_s, _, text = outcome.changed[-1]
    assert text.startswith("back: it is worse: TPOT")
    assert share_of(outcome, "v2", at_s) == 0.0
    assert outcome.count(End.ANSWERED) == outcome.requests


def test_one_that_dies_goes_back_for_its_errors():
    faults = tuple(Fault(30.0 + 5 * n, Trouble.DIES, "v2", n) for n in range(12))
    outcome = changed(Change(10.0, "v1", "v2", PLAN), model(), faults=faults)
    assert "back" in said(outcome)


@pytest.mark.parametrize(
    ("change", "gpus", "why"),
    [
        (Change(10.0, "v1", "v2", PLAN, is_alike=False), 8, "it is not what it was"),
        (Change(10.0, "v1", "v2", PLAN), 4, "there is no room"),
    ],
)
def test_what_is_not_alike_or_has_no_room_is_never_asked(change, gpus, why):
    outcome = changed(change, model(), gpus=gpus, lasts_s=60.0)
    assert outcome.changed[-1][2].startswith(f"back: {why}")
    assert share_of(outcome, "v2", 0.0) == 0.0


def test_a_rolling_update_of_four_needs_no_free_device_and_of_three_it_is_stuck():
    change = Change(10.0, "v1", "v2", Rolling())
    four = changed(change, model(), gpus=4, lasts_s=800.0)
    assert said(four).splitlines()[-1].startswith("done")
    assert four.count(End.ANSWERED) == four.requests
    three = changed(change, model(), replicas=3, gpus=3, lasts_s=800.0)
    at_s, _, text = three.changed[-1]
    assert text.startswith("stuck for 600 s")
    assert at_s == pytest.approx(610, abs=2)
    assert share_of(three, "v2", 0.0) == 0.0
    assert three.count(End.ANSWERED) == three.requests, "the old ones serve on"


def test_a_rolling_update_ships_a_slow_version():
    """It asks whether replicas are ready, and nothing else."""
    awful = model(engine=engine(machine=Machine(Plain(0.1, 0.0, 20_000.0), 40_000)))
    outcome = changed(Change(10.0, "v1", "v2", Rolling()), awful, lasts_s=120.0)
    assert said(outcome).splitlines()[-1].startswith("done")
