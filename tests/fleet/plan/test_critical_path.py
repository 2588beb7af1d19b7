"""The critical path of a deployment against every path tried, and the price of a slip."""

import random

import pytest

from ridgeline.errors import RidgelineError, SpecError, UnitError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

DAY = 86_400


def deploy(tasks, **given):
    return ask("critical-path", {"tasks": tasks} | given).answer


def graph(seed):
    """Tasks with whole days, each needing some of those before it."""
    chance = random.Random(seed)
    days, needs = {}, {}
    for k in range(chance.randint(1, 9)):
        name = f"t{k}"
        needs[name] = [one for one in days if chance.random() < 0.35]
        days[name] = chance.randint(0, 30)
    return days, needs


def chains(days, needs):
    """Every way from a task that needs nothing to any task, tried one by one."""
    found = []

    def walk(chain):
        found.append(chain)
        for name in days:
            if chain[-1] in needs[name]:
                walk([*chain, name])

    for name in days:
        if not needs[name]:
            walk([name])
    return found


def written(days, needs):
    order = sorted(days, reverse=True)  # needs are named before they are described
    return "; ".join(
        f"{name}:{days[name]}d" + (f"<{','.join(needs[name])}" if needs[name] else "")
        for name in order
    )


@pytest.mark.proves("S019")
@pytest.mark.parametrize("seed", range(100))
def test_length_and_slack_are_those_of_an_exhaustive_search(seed):
    days, needs = graph(seed)
    lengths = {tuple(chain): sum(days[name] for name in chain) for chain in chains(days, needs)}
    longest = max(lengths.values())
    answer = deploy(written(days, needs))
    assert answer.values["length"].to("day") == pytest.approx(longest)
    for row in answer.table:
        through = max(length for chain, length in lengths.items() if row["task"] in chain)
        assert row["slack"].to("day") == pytest.approx(longest - through)
    path = answer.says.split("along ")[1].split(";")[0].split(" > ")
    assert lengths[tuple(path)] == longest


@pytest.mark.proves("S019")
def test_a_month_late_costs_10000_gpus_18_3_million():
    values = deploy("power:90d", gpus="10000", price_usd_per_s="2.5 USD/h", slip_s="730 h").values
    assert values["cost_of_delay"].value == pytest.approx(18.3e6, rel=0.01)


def test_a_slip_within_slack_costs_nothing_and_beyond_it_only_the_rest():
    answer = deploy(
        "power:60d; hall:50d; on:1d<power,hall",
        gpus="100",
        slip_s="15 day",
        price_usd_per_s="2.5 USD/h",
    )
    costs = {row["task"]: row["cost of slip"].value for row in answer.table}
    a_day = 100 * 2.5 * 24
    assert costs == pytest.approx({"power": 15 * a_day, "hall": 5 * a_day, "on": 15 * a_day})


def test_one_task_can_be_moved_by_its_name():
    asked = ask("critical-path", {"tasks": "power-feed:60d; hall:50d<power-feed"},
                {"power_feed": "100 day"})  # fmt: skip
    assert asked.answer.values["length"].to("day") == pytest.approx(150)


def test_a_month_for_1024_gpus_is_1_7_million():
    values = deploy("hall:1d", gpus="1024", price_usd_per_s="2.3 USD/h", slip_s="1 month").values
    assert values["cost_of_delay"].value == pytest.approx(1.7e6, rel=0.02)


@pytest.mark.parametrize(
    ("tasks", "kind", "told"),
    [
        ("a:3d<c; b:2d<a; c:1d<b", SpecError, "wait for each other"),
        ("a:3d<a", SpecError, "a > a"),
        ("a:3", UnitError, "no unit"),
        ("a:3kg", UnitError, "kg"),
        ("a:3d<halls; hall:2d", SpecError, "halls"),
        ("a:3d; a:2d", SpecError, "twice"),
        ("a-b:3d; a_b:2d", SpecError, "twice"),
        ("a", SpecError, "no task"),
        ("3d:a", SpecError, "no task"),
        ("a:-3d", SpecError, "less than nothing"),
        (" ; ", SpecError, "no tasks"),
    ],
)
def test_a_text_that_is_no_plan_is_refused_with_what_would_do(tasks, kind, told):
    with pytest.raises(RidgelineError, match=told) as caught:
        deploy(tasks)
    assert isinstance(caught.value, kind)
    assert caught.value.where == "tasks"
    assert caught.value.remedy


def test_the_nearest_task_is_named_for_one_that_is_none():
    with pytest.raises(SpecError) as caught:
        deploy("racks:3d<halls; hall:2d")
    assert caught.value.remedy.startswith("hall")
