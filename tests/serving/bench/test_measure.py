import json
import os
import signal
import threading

import pytest

from ridgeline.errors import SpecError
from ridgeline.serving.bench.goodput import Slo
from ridgeline.serving.bench.load import Plan, Watcher
from ridgeline.serving.bench.measure import Levels, measure_run, measure_sweep
from ridgeline.workload import Sizes

SHORT = Sizes("fixed", 4)
QUIET = Watcher(lambda plan, text: None, lambda sample: None)


def plan_of(fake, **changed) -> Plan:
    made = {"seed": 3, "workers": 2, "requests": 8, "output": SHORT, "slo": Slo(ttft_s=30.0)}
    return Plan(fake.url, **(made | changed))


def test_a_run_over_a_real_socket_measures_what_the_server_does(fake, believed):
    """Bounds from below are exact (the server never answers early); from above the test is lax."""
    fake.ttft_s, fake.gap_s = 0.05, 0.02
    report = measure_run(plan_of(fake), QUIET)
    assert (report.completed, report.failed) == (8, 0)
    assert 0.05 <= report.ttft.p50 < 1.0
    assert 0.015 <= report.tpot.p50 < 0.5
    assert report.e2e.p50 >= 0.05 + 3 * 0.02
    assert report.output_tokens == 8 * 4
    assert report.goodput.share == 1.0
    assert len(fake.bodies) == 8 + 2  # two for warm-up


def test_failures_are_counted_by_kind(fake, believed):
    fake.fail_with, fake.fail_every = 503, 2
    report = measure_run(plan_of(fake, warmup=1, workers=1), QUIET)
    assert report.errors == {"http 503": 4}
    assert report.goodput.share == 0.5
    assert "http 503: as told" in report.notes


def test_a_sweep_over_a_real_socket_finds_a_knee(fake, believed):
    """One slot: a second worker only waits."""
    fake.ttft_s, fake.slots = 0.02, 1
    told: list[str] = []
    levels = Levels(0.9, lambda report, verdict: told.append(report.setting.loop))
    plan = plan_of(fake, workers=1, requests=10, slo=Slo(ttft_s=30.0))
    found = measure_sweep(plan, QUIET, levels)
    assert found.best == 1
    assert told[:2] == ["1 worker", "2 workers"]
    assert json.dumps(found.to_dict(samples=True))


def test_ctrl_c_ends_a_run_early_with_a_report(fake, believed):
    answered = threading.Event()

    def seen(sample) -> None:
        if not answered.is_set():
            answered.set()
            fake.ttft_s = 3600.0
            os.kill(os.getpid(), signal.SIGINT)

    report = measure_run(plan_of(fake, requests=1000, warmup=0), Watcher(QUIET.began, seen))
    assert report.interrupted
    assert 1 <= report.completed < 1000
    assert report.unfinished >= 1


def test_an_unknown_model_is_told_before_anything_is_sent(fake):
    with pytest.raises(SpecError, match='"other" is not served; there is: fake-1'):
        measure_run(plan_of(fake, model="other"), QUIET)
    assert fake.bodies == []
