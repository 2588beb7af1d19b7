"""What a run says of itself."""

import json

import numpy as np
import pytest
from worlds import model

from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.outcome import percentile
from ridgeline.serving.simulate.report import Slo, by, by_class, by_model, kept, report
from ridgeline.serving.simulate.series import Series
from ridgeline.serving.simulate.setup import Serving, Tenant
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


def shared(requests, *tenants):
    """A run in which several ask several."""
    serving = Serving((model(), model("code")), tuple(tenants))
    return serving, simulate(serving, OpenLoop(requests, "chat"))


def test_parts_add_up():
    requests = [
        Request(number * 0.2, 200, 11, tenant="ab"[number % 2], model=("chat", "code")[number > 6])
        for number in range(10)
    ]
    serving, told = shared(requests, Tenant("a", "interactive"), Tenant("b", "bulk"))
    promises = {"chat": Slo(0.5, 0.02), "code": Slo(0.001, 0.02)}.get
    tenants = by(told, "tenant", promises)
    assert {name: one["requests"] for name, one in tenants.items()} == {"a": 5, "b": 5}
    assert tenants["a"]["slo"]["attainment"] == pytest.approx(4 / 5), "each against its model's"
    models = by_model(told, serving, promises)
    assert [models[name]["slo"]["attainment"] for name in ("chat", "code")] == [1.0, 0.0]
    assert sum(one["replica_hours"] for one in models.values()) == pytest.approx(told.replica_hours)
    classes = by_class(told, serving, promises)
    assert {name: one["requests"] for name, one in classes.items()} == {"interactive": 5, "bulk": 5}
    assert kept(told, promises)["attainment"] == pytest.approx(0.7)
    assert kept(told, lambda _: None) is None


def test_what_was_looked_at_over_time_is_told_as_json():
    requests = [Request(number * 0.2, 200, 11) for number in range(10)]
    run = simulate(Serving((model(),)), OpenLoop(requests, "chat"), series=Series())
    told = report(run)
    assert sum(told["bound"]["all"].values()) == pytest.approx(1)
    seen = told["series"]["kinds"]["chat"]
    assert len(told["series"]["at_s"]) == len(seen["ready"]) == len(seen["bound_s"]["idle"]) + 1
    json.dumps(told, allow_nan=False)


def test_a_run_out_of_balance_has_no_percentiles():
    requests = [Request(number * 0.002, 100, 100) for number in range(1000)]
    told = report(simulate(Serving((model(slots=10**6),)), OpenLoop(requests, "chat")))
    assert told["verdict"] == "unstable"
    assert told["growth_per_s"]["mean"] - told["growth_per_s"]["half"] > 0
    assert set(told["ttft_s"].values()) == {None}
    assert told["times_of_this_run"]["ttft_s"]["p99"] > 10
    json.dumps(told, allow_nan=False)


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.9, 90), (0.99, 99), (1.0, 100)])
def test_percentiles_are_values_that_were_there(share, value):
    assert percentile(np.arange(1, 101)[::-1].astype(float), share) == value
