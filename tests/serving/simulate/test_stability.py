"""Near its limit a platform gives no number, but says so."""

import numpy as np
import pytest
from worlds import engine, model

from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.policy.limits import Limits
from ridgeline.serving.simulate.clients import ClosedLoop, OpenLoop
from ridgeline.serving.simulate.report import report
from ridgeline.serving.simulate.setup import Serving, Tenant
from ridgeline.serving.simulate.stability import balance_of
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request, parse_arrivals, parse_sizes, synthetic

#: 10 ms a step, 8 seats, 100 tokens: 8 requests a second at the very most.
ONE = model(engine=engine(machine=Machine(Plain(0.01, 0.0, 1e9), 100_000), max_seqs=8), slots=10**6)


def told(rate_per_s: float, seed: int, requests: int = 1500):
    """What a report says of so much traffic."""
    traffic = synthetic(
        parse_arrivals("poisson"), parse_sizes("16", where=""), parse_sizes("100", where=""),
        rate_per_s=rate_per_s, seed=seed,
    )  # fmt: skip
    some = [next(traffic) for _ in range(requests)]
    patient = Serving((ONE,))
    return report(simulate(patient, OpenLoop(some, "chat")))


@pytest.mark.parametrize("rate_per_s", [2.0, 5.0, 6.5])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_with_room_to_spare_it_is_stable(rate_per_s, seed):
    assert told(rate_per_s, seed)["stable"]


@pytest.mark.parametrize("rate_per_s", [9.2, 10.0, 20.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_beyond_its_limit_it_is_not(rate_per_s, seed):
    assert not told(rate_per_s, seed)["stable"]


@pytest.mark.parametrize("rate_per_s", [8.0, 8.3, 9.2])
@pytest.mark.parametrize("seed", range(8))
def test_at_its_limit_no_run_gives_a_lucky_number(rate_per_s, seed):
    """8 a second are all that it can: some of these runs end with less in flight than before."""
    found = told(rate_per_s, seed, requests=6000)
    assert found["verdict"] in ("unstable", "at its limit")
    assert found["ttft_s"]["p99"] is None


@pytest.mark.parametrize("seed", range(4))
def test_growth_is_what_comes_less_what_can_be_served(seed):
    growth = told(12.0, seed, requests=4000)["growth_per_s"]
    assert growth["half"] < 2
    assert growth["mean"] == pytest.approx(4.0, abs=2 * growth["half"])


@pytest.mark.parametrize("rate_per_s", [4.0, 6.5, 7.2])
@pytest.mark.parametrize("seed", range(4))
def test_at_nine_tenths_of_the_limit_a_long_run_is_stable(rate_per_s, seed):
    assert told(rate_per_s, seed, requests=4000)["verdict"] == "stable"


@pytest.mark.parametrize("at_s", [300.0, 360.0, 400.0])
def test_more_that_come_are_no_backlog(at_s):
    """Twice as many from some time on, of which it could serve more still: first tokens are later.

    The machine takes longer the more it has, as all do.
    """
    gaps = [0.4] * 1500
    times = np.cumsum(gaps)
    times = np.where(times < at_s, times, at_s + (times - at_s) / 2)
    requests = [Request(float(at), 16, 100) for at in times]
    one = model(engine=engine(machine=Machine(Plain(0.006, 0.001, 1e9), 100_000)))
    found = report(simulate(Serving((one,)), OpenLoop(requests, "chat")))
    assert found["in_flight"]["last_quarter"] > 0
    assert found["verdict"] == "stable"


def test_a_rate_that_rises_beyond_the_limit_is_unstable():
    times = np.sqrt(np.arange(1, 3001) * 30.0)  # up to 20 a second, of 8 that it can
    requests = [Request(float(at), 16, 100) for at in times]
    found = report(simulate(Serving((ONE,)), OpenLoop(requests, "chat")))
    assert found["verdict"] == "unstable"


def test_where_many_are_turned_away_from_a_queue_it_is_overloaded():
    requests = [Request(number * 0.01, 16, 100) for number in range(12000)]
    one = model(engine=ONE.engine)
    found = report(simulate(Serving((one,)), OpenLoop(requests, "chat")))
    assert found["ends"]["refused"] > 1000
    assert found["verdict"] == "overloaded"
    assert found["ttft_s"]["p99"] is None


def test_limits_that_refuse_are_no_overload():
    tenant = Tenant("", limits=Limits(requests_per_minute=60))
    requests = [Request(number * 0.1, 16, 20) for number in range(600)]
    found = report(simulate(Serving((ONE,), (tenant,)), OpenLoop(requests, "chat")))
    assert found["ends"]["refused"] > 100
    assert found["verdict"] == "stable"


def test_a_closed_loop_of_more_clients_than_seats_is_in_balance():
    requests = [Request(0.0, 16, 100) for _ in range(600)]
    run = simulate(Serving((ONE,)), ClosedLoop(requests, "chat", 40))
    assert balance_of(run).verdict == "at its limit"
    assert balance_of(run, is_loop=True).verdict == "stable"


def test_a_run_that_only_fills_up_is_stable():
    """Few requests, long answers: in flight goes up all the time, and nobody waits longer."""
    assert told(4.0, 1, requests=100)["stable"]
