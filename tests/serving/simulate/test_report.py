"""What a run says of itself."""

import json

import numpy as np
import pytest
from worlds import model

from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.outcome import percentile
from ridgeline.serving.simulate.report import Slo, by, report
from ridgeline.serving.simulate.setup import Serving
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request


def outcome(count: int = 10):
    requests = [Request(number * 0.2, 200, 11) for number in range(count)]
    return simulate(Serving((model(),)), OpenLoop(requests, "chat"))


def test_it_counts_who_got_what_was_promised():
    told = report(outcome(), Slo(0.5, 0.02))
    assert told["requests"] == 10
    assert told["ends"] == {"answered": 10}
    assert told["slo"]["attainment"] == 1.0
    assert told["ttft_s"]["p50"] == pytest.approx(0.02)
    assert told["tpot_s"]["mean"] == pytest.approx(0.0101)
    assert report(outcome(), Slo(0.001, 0.02))["slo"]["attainment"] == 0.0


def test_it_is_json_even_where_nothing_was_asked():
    told = report(simulate(Serving((model(),)), OpenLoop([], "chat")), Slo(1, 1))
    assert told["ttft_s"]["p99"] is None
    json.dumps(told, allow_nan=False)


def test_parts_add_up():
    parts = by(outcome(), "model", None)
    assert sum(one["requests"] for one in parts.values()) == 10


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.9, 90), (0.99, 99), (1.0, 100)])
def test_percentiles_are_values_that_were_there(share, value):
    assert percentile(np.arange(1, 101)[::-1].astype(float), share) == value
