"""Several runs: intervals, differences under the same chances, and the search for a limit."""

from dataclasses import replace

import pytest
from worlds import engine, model

from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.simulate.report import Slo
from ridgeline.serving.simulate.setup import Serving
from ridgeline.serving.simulate.study import Interval, compare, find_rate, interval, runs
from ridgeline.serving.simulate.traffic import Loop, Seeded, Traffic
from ridgeline.workload import parse_arrivals, parse_sizes

SEEDED = Seeded(
    parse_arrivals("poisson"), parse_sizes("100", where=""), parse_sizes("20", where=""), 5.0, 200
)
TRAFFIC = Traffic(SEEDED, "chat")


def test_an_interval_is_students():
    """Of 1, 2 and 3: the mean 2, and 4.303 x 1 / sqrt(3)."""
    found = interval([1.0, 2.0, 3.0])
    assert found.mean == 2.0
    assert found.half == pytest.approx(2.4843, rel=1e-3)
    assert interval([5.0]) == Interval(5.0, None)
    assert not interval([5.0]).is_apart()
    assert interval([1.0, 1.1, 0.9]).is_apart()


def test_the_same_platform_differs_in_nothing():
    serving = Serving((model(),))
    rows = compare(runs(serving, TRAFFIC, [0, 1, 2]), runs(serving, TRAFFIC, [0, 1, 2]), None)
    assert all(one.difference == Interval(0.0, 0.0) for one in rows)


def test_common_chances_make_a_difference_sharper_than_its_parts():
    slower = model(engine=engine(machine=Machine(Plain(0.0105, 0.0001, 20_000.0), 40_000)))
    busy = Traffic(replace(SEEDED, rate_per_s=30.0, count=600), "chat")
    some = [runs(Serving((one,)), busy, range(5)) for one in (model(), slower)]
    whole = next(one for one in compare(*some, None) if one.name == "whole p90 (s)")
    assert whole.difference.is_apart()
    assert whole.difference.half < whole.first.half


def test_a_rate_is_found_from_below_and_from_above():
    """8 seats, 20 tokens of about 10.5 ms: about 38 requests a second are the most."""
    patient = Serving((model(slots=1000),))
    found = [
        find_rate(
            patient,
            Traffic(replace(SEEDED, rate_per_s=rate, count=3000), "chat"),
            Slo(0.5, 0.05),
            [1],
        )
        for rate in (2.0, 500.0)
    ]
    for one in found:
        assert 15 < one.kept_per_s < 38
        assert one.kept_per_s < one.missed_per_s
    assert found[0].kept_per_s == pytest.approx(found[1].kept_per_s, rel=0.1)


def test_what_has_no_rate_has_none_to_find():
    closed = Traffic(SEEDED, "chat", Loop(4))
    with pytest.raises(ValueError, match="have a rate"):
        find_rate(Serving((model(),)), closed, Slo(1, 1), [0])
    with pytest.raises(ValueError, match="thousandth"):
        find_rate(Serving((model(),)), TRAFFIC, Slo(1e-6, 1e-6), [0])


def test_traffic_is_the_same_for_a_seed_and_faster_only_in_time():
    once, twice = (
        [(one.prompt_tokens, one.output_tokens, one.at_s) for one in SEEDED.requests(3, faster)]
        for faster in (1.0, 2.0)
    )
    assert [one[:2] for one in once] == [one[:2] for one in twice]
    assert [one[2] for one in once] == pytest.approx([2 * one[2] for one in twice])
    assert TRAFFIC.name.startswith("5/s, Poisson")
