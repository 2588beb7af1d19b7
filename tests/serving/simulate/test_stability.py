"""Near its limit a platform gives no number, but says so."""

import pytest
from worlds import engine, model

from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.report import report
from ridgeline.serving.simulate.setup import Serving
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import parse_arrivals, parse_sizes, synthetic

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


def test_a_run_that_only_fills_up_is_stable():
    """Few requests, long answers: in flight goes up all the time, and nobody waits longer."""
    assert told(4.0, 1, requests=100)["stable"]
