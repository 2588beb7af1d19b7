"""Clients who leave, and who come again."""

import pytest
from worlds import engine, model

from ridgeline.errors import SpecError
from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.policy.limits import Limits
from ridgeline.serving.simulate.asked import End
from ridgeline.serving.simulate.clients import Manners, OpenLoop, Several
from ridgeline.serving.simulate.setup import Serving, Tenant
from ridgeline.serving.simulate.world import simulate
from ridgeline.timeline import NS
from ridgeline.workload import Request

#: A tenth of a second a step, whatever is in it.
_STEADY = engine(machine=Machine(Plain(0.1, 0.0, 1e9), 40_000))


def run(output_tokens: int, manners: Manners, serving: Serving | None = None):
    """One request."""
    asks = OpenLoop([Request(0.0, 10, output_tokens)], "chat", manners=manners)
    return simulate(serving or Serving((model(engine=_STEADY),)), asks)


def busy_s(outcome) -> float:
    return sum(one.busy_s for one in outcome.replicas)


def test_who_left_and_asks_again_has_as_much_done_each_time():
    once = run(100, Manners(whole_s=2.0))
    assert once.count(End.LEFT) == 1
    assert once.lasted_s == pytest.approx(2.0)
    thrice = run(100, Manners(2, whole_s=2.0, again=True))
    assert thrice.requests == 1, "one row, that of the last attempt"
    assert thrice.count(End.LEFT) == 1
    assert thrice.lasted_s == pytest.approx(3 * 2.0 + 2 * 1.0), "a second between two attempts"
    assert busy_s(thrice) == pytest.approx(3 * busy_s(once), abs=0.31), "and a step"


def test_times_are_from_the_first_asking():
    """The first attempt is behind another one's answer; the second one is not."""
    one = model(engine=engine(machine=Machine(Plain(0.1, 0.0, 1e9), 40_000), max_seqs=1), slots=10)
    asks = [Request(0.0, 10, 15), Request(0.01, 10, 3)]
    manners = Manners(1, first_token_s=1.0, again=True)
    outcome = simulate(Serving((one,)), OpenLoop(asks, "chat", manners=manners))
    assert outcome.count(End.ANSWERED) == 2
    assert outcome.columns["at_ns"].max() == round(0.01 * NS)
    assert outcome.ttft_s().max() == pytest.approx(1.0 + 1.0 + 0.1, abs=0.11)


def test_without_again_only_the_refused_come_again():
    assert run(100, Manners(5, whole_s=2.0)).lasted_s == pytest.approx(2.0)
    serving = Serving((model(engine=_STEADY),), (Tenant("", limits=Limits(concurrent=1)),))
    two = [Request(0.0, 10, 5), Request(0.1, 10, 5)]
    outcome = simulate(serving, OpenLoop(two, "chat", manners=Manners(5, whole_s=2.0)))
    assert outcome.count(End.ANSWERED) == 2


@pytest.mark.parametrize("given", [{"retries": 1}, {"whole_s": 2.0}, {}])
def test_again_where_nobody_leaves_or_asks_twice_is_an_error(given):
    with pytest.raises(SpecError, match="leaving"):
        Manners(**given, again=True)


def test_the_time_a_first_attempt_may_wait_ends_no_later_one():
    """Nobody waits longer than 60 s in the line: the first attempt from 0 s on, the next from 41 s.

    The slot is free after 70 s.
    """
    one = model(engine=engine(machine=Machine(Plain(0.1, 0.0, 1e9), 40_000), max_seqs=1), slots=1)
    first, second = Request(0.0, 10, 700), Request(0.0, 10, 5)
    manners = Manners(1, first_token_s=40.0, again=True)
    hasty = OpenLoop([second], "chat", manners=manners)
    outcome = simulate(Serving((one,)), Several([OpenLoop([first], "chat"), hasty]))
    assert outcome.requests == outcome.count(End.ANSWERED) == 2
