"""The search for a limit: the highest rate, the fewest replicas."""

from dataclasses import replace

import pytest
from worlds import model

from ridgeline.serving.policy.scale import Settings
from ridgeline.serving.simulate import search
from ridgeline.serving.simulate.report import Slo
from ridgeline.serving.simulate.search import find_rate, find_replicas, with_replicas
from ridgeline.serving.simulate.setup import Scaling, Serving
from ridgeline.serving.simulate.traffic import Loop, Seeded, Traffic
from ridgeline.workload import parse_arrivals, parse_sizes

SEEDED = Seeded(
    parse_arrivals("poisson"), parse_sizes("100", where=""), parse_sizes("20", where=""), 5.0, 200
)
TRAFFIC = Traffic(SEEDED, "chat")


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


def test_the_fewest_replicas_are_found():
    """About 38 a second each at the very most: 100 a second need three, and a little room."""
    busy = Traffic(replace(SEEDED, rate_per_s=100.0, count=3000), "chat")
    found = find_replicas(Serving((model(),)), busy, Slo(0.5, 0.05), [1])
    assert found.replicas in (3, 4)
    assert found.attainment >= 0.95
    assert found.one_less is not None
    assert found.is_monotone
    one = find_replicas(Serving((model(replicas=3),)), TRAFFIC, Slo(0.5, 0.05), [1])
    assert (one.replicas, one.one_less) == (1, None)


def test_where_the_most_replicas_miss_it_is_said():
    with pytest.raises(ValueError, match="not even 8 replicas keep the SLO"):
        find_replicas(Serving((model(),)), TRAFFIC, Slo(1e-6, 1e-6), [0], most=8)


def test_a_limit_that_is_none_is_said(monkeypatch):
    """With 3 it is kept and with 4 it is not: bisection has found one of several ends."""
    counts = []

    def count(serving, *_args, **_named):
        counts.append(serving.models[0].replicas)
        return []

    monkeypatch.setattr(search, "runs", count)
    monkeypatch.setattr(
        search, "keeps", lambda *_args, **_named: (counts[-1] in (8, 9), counts[-1] / 10)
    )
    found = find_replicas(Serving((model(),)), TRAFFIC, Slo(1, 1), [0])
    assert (found.replicas, found.is_monotone) == (8, True)
    monkeypatch.setattr(
        search, "keeps", lambda *_args, **_named: (counts[-1] in (2, 4), counts[-1] / 10)
    )
    found = find_replicas(Serving((model(),)), TRAFFIC, Slo(1, 1), [0])
    assert (found.replicas, found.one_less, found.is_monotone) == (2, 0.1, False)


def test_the_replicas_of_the_asked_model_are_set_and_nobody_scales_them():
    scaled = model(scaling=Scaling(Settings(1, 4, 2.0)))
    serving = with_replicas(Serving((model("other"), scaled)), "chat", 7)
    assert [(one.replicas, one.scaling) for one in serving.models] == [(1, None), (7, None)]
