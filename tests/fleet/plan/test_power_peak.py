"""Synchronised peaks on a feed, against a trace of every node, and the fixes in their order."""

import pytest

from ridgeline.errors import RidgelineError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

#: A node that is all boards, as the row counts it: 8 of 700 W.
ROW = {
    "nodes": "100",
    "node_w": "5.6 kW",
    "feed_w": "504 kW",
    "phases": "compute 99s 100%; checkpoint 1s 30%",
}


def peak(**given):
    return ask("power-peak", ROW | given).answer


def trace(nodes, phases, offsets, steps=1000):
    """Power of all nodes over one step, sampled; phases as (seconds, watts of a node)."""
    whole = sum(lasts for lasts, _ in phases)

    def draws(at):
        at %= whole
        for lasts, watts in phases:
            if at < lasts:
                return watts
            at -= lasts
        return phases[-1][1]

    return [
        sum(draws((k + 0.5) / steps * whole + offset * whole) for offset in offsets)
        * nodes / len(offsets)
        for k in range(steps)
    ]  # fmt: skip


@pytest.mark.proves("S016")
def test_a_10_percent_cap_keeps_the_feed_under_its_limit_for_3_5_percent_of_throughput():
    values = peak().values
    assert values["cap"].value == pytest.approx(0.9)
    assert values["throughput_cost"].value == pytest.approx(0.0345, rel=0.01)
    assert values["compute_cost"].value == pytest.approx(0.0345, rel=0.001)
    clock = 0.9 ** (1 / 3)
    uncapped = trace(100, [(99, 5600), (1, 1680)], [0.0])
    capped = trace(100, [(99 / clock, 0.9 * 5600), (1, 1680)], [0.0])
    assert max(uncapped) == pytest.approx(values["peak"].value)
    assert max(uncapped) > 504e3
    assert max(capped) == pytest.approx(values["capped_peak"].value)
    assert max(capped) <= 504e3 * (1 + 1e-9)
    assert values["throughput_cost"].value == pytest.approx(1 - 100 / (99 / clock + 1))


@pytest.mark.proves("S016")
def test_fixes_are_ranked_those_that_act_at_once_first_and_the_cheaper_before_the_dearer():
    table = peak().table
    assert [row["rank"] for row in table] == ["1", "2", "3", "4", "5", "6"]
    assert [row["fix"] for row in table[:2]] == ["cap all boards alike", "stop nodes"]
    assert table[1]["throughput cost"].value == pytest.approx(0.1)
    keeps = [row["keeps the feed"] for row in table]
    assert keeps == sorted(keeps, reverse=True)
    for row in table:
        assert (row["peak"].value <= 504e3 * 1.000001) == (row["keeps the feed"] == "yes")


def test_peak_to_average_is_that_of_the_trace():
    values = peak(phases="compute 800ms 100%; all-reduce 200ms 40%").values
    seen = trace(100, [(0.8, 5600), (0.2, 0.4 * 5600)], [0.0])
    assert values["peak_to_average"].value == pytest.approx(max(seen) / (sum(seen) / len(seen)))


@pytest.mark.parametrize("jobs", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("low", [150, 250, 600])
def test_jobs_started_apart_peak_where_a_trace_of_all_nodes_does(jobs, low):
    phases = f"compute {1000 - low}ms 100%; all-reduce {low}ms 40%"
    table = peak(phases=phases, jobs=str(jobs)).table
    apart = next(row for row in table if row["fix"] == "start jobs apart")
    seen = trace(100, [(1 - low / 1000, 5600), (low / 1000, 2240)], [j / jobs for j in range(jobs)])
    assert apart["peak"].value == pytest.approx(max(seen))


def test_boards_give_up_more_than_the_feed_has_to_where_the_rest_of_a_node_draws_on():
    values = peak(node_w="10.2 kW", feed_w="918 kW").values  # 10 % under 1.02 MW
    assert values["cap"].value == pytest.approx(1 - 0.1 / (5.6 / 10.2), rel=1e-6)
    assert values["compute_cost"].value > 0.06


def test_only_phases_above_the_limit_slow_down():
    values = peak(phases="backward 600ms 100%; forward 400ms 80%").values
    assert values["throughput_cost"].value == pytest.approx(1 - 1 / (0.6 / 0.9 ** (1 / 3) + 0.4))


def test_storage_holds_what_is_above_the_feed_as_long_as_it_lasts():
    values = peak(phases="compute 800ms 100%; all-reduce 200ms 40%").values
    assert values["storage"].value == pytest.approx(56e3 * 0.8 / 0.9)


def test_a_feed_below_any_limit_of_the_boards_is_answered_with_no():
    answer = peak(feed_w="100 kW")
    assert not answer.ok
    assert "No cap" in answer.says


def test_a_feed_above_the_peak_needs_no_cap():
    answer = peak(feed_w="600 kW")
    assert answer.values["cap"].value == 1
    assert answer.values["throughput_cost"].value == pytest.approx(0)
    assert "uncapped" in answer.says


def test_1280_nodes_are_capped_in_80_seconds():
    values = peak(nodes="1280", feed_w="6.4 MW", nodes_at_once="32", command_s="2 s").values
    assert values["time_to_cap"].to("min") == pytest.approx(1.333, rel=0.01)


@pytest.mark.parametrize(
    ("given", "where"),
    [
        ({"phases": "compute 1s"}, "phases"),
        ({"phases": "compute 1s 120%"}, "phases"),
        ({"phases": "compute 1 100%"}, "phases"),
        ({"phases": "compute 0s 100%"}, "phases"),
        ({"phases": "a 1s 5%; a 1s 6%"}, "phases"),
        ({"phases": ""}, "phases"),
        ({"node_w": "5 kW"}, "node"),
        ({"static_share": "0.4"}, "static-share"),
    ],
)
def test_phases_and_nodes_that_cannot_be_are_refused(given, where):
    with pytest.raises(RidgelineError) as caught:
        peak(**given)
    assert caught.value.where == where
    assert caught.value.remedy
