"""Several runs: differences under the same chances, and what the parts of one run say."""

from dataclasses import replace

import pytest
from worlds import engine, model

from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.simulate.intervals import Interval
from ridgeline.serving.simulate.setup import Serving
from ridgeline.serving.simulate.study import compare, runs
from ridgeline.serving.simulate.traffic import Seeded, Traffic
from ridgeline.workload import Trace, parse_arrivals, parse_sizes

SEEDED = Seeded(
    parse_arrivals("poisson"), parse_sizes("100", where=""), parse_sizes("20", where=""), 5.0, 200
)
TRAFFIC = Traffic(SEEDED, "chat")


def test_the_same_platform_differs_in_nothing():
    serving = Serving((model(),))
    rows = compare([runs(serving, TRAFFIC, [0, 1, 2]) for _ in range(3)], None)
    assert all(one.differences == (Interval(0.0, 0.0),) * 2 for one in rows)


def test_common_chances_make_a_difference_sharper_than_its_parts():
    slower = model(engine=engine(machine=Machine(Plain(0.0105, 0.0001, 20_000.0), 40_000)))
    busy = Traffic(replace(SEEDED, rate_per_s=30.0, count=600), "chat")
    some = [runs(Serving((one,)), busy, range(5)) for one in (model(), slower)]
    whole = next(one for one in compare(some, None) if one.name == "whole p90 (s)")
    assert whole.differences[0].is_apart()
    assert whole.differences[0].half < whole.values[0].half


def test_where_seeds_change_nothing_the_parts_of_a_run_stand_in_for_runs():
    requests = tuple(SEEDED.requests(0, 1.0))
    traced = Traffic(Trace("t", requests, 0, timed=True), "chat")
    slower = model(engine=engine(machine=Machine(Plain(0.012, 0.0001, 20_000.0), 40_000)))
    for seeds in ([0], [0, 1, 2]):
        some = [runs(Serving((one,)), traced, seeds) for one in (model(), slower)]
        rows = {one.name: one for one in compare(some, None)}
        gap = rows["TPOT p50 (s)"].differences[0]
        assert gap.is_apart()
        assert gap.mean == pytest.approx(0.002, rel=0.1)
        assert rows["TPOT p50 (s)"].values[0].half > 0
        if len(seeds) == 1:
            assert rows["replica-hours"].differences[0].half is None, "a run has one only"


def test_of_a_short_run_nothing_is_known_of_chance():
    few = Traffic(replace(SEEDED, count=50), "chat")
    rows = compare([runs(Serving((model(),)), few, [0])] * 2, None)
    assert all(gap.half is None for one in rows for gap in one.differences)


def test_traffic_is_the_same_for_a_seed_and_faster_only_in_time():
    once, twice = (
        [(one.prompt_tokens, one.output_tokens, one.at_s) for one in SEEDED.requests(3, faster)]
        for faster in (1.0, 2.0)
    )
    assert [one[:2] for one in once] == [one[:2] for one in twice]
    assert [one[2] for one in once] == pytest.approx([2 * one[2] for one in twice])
    assert TRAFFIC.name.startswith("5/s, Poisson")
