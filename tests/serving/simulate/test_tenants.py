"""Tenants in virtual time: the books balance, and the world is the same for everybody."""

from dataclasses import replace

import pytest

from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.policy.limits import Limits
from ridgeline.serving.simulate.tenants import Setup, Tenant, simulate
from ridgeline.workload import Sizes

SETUP = Setup(Machine(Plain(fixed_s=0.01), 100_000), slots=8, lasts_s=20.0, seed=7)
ONE = Tenant("one", 2.0, Sizes("fixed", 100), Sizes("fixed", 20))
TWO = replace(ONE, name="two", prompt=Sizes("lognormal", 100, 1.0))


def test_a_request_alone_takes_its_steps() -> None:
    alone = simulate([replace(ONE, rate_per_s=0.2)], SETUP).asked[0]
    # One step with the prompt gives the first token, 19 more the others.
    assert alone.first_ns is not None
    assert (alone.first_ns - alone.at_ns) / 1e9 == pytest.approx(0.01 + 100 / 20_000, abs=1e-6)
    assert alone.total_s == pytest.approx(0.2 + 100 / 20_000, abs=1e-6)


def test_the_same_seed_gives_the_same_run() -> None:
    assert simulate([ONE, TWO], SETUP).asked == simulate([ONE, TWO], SETUP).asked
    other = simulate([ONE, TWO], replace(SETUP, seed=8))
    assert [one.at_ns for one in other.asked] != [one.at_ns for one in simulate([ONE], SETUP).asked]


def test_one_tenant_does_not_change_what_the_others_ask() -> None:
    quiet, loud = (
        simulate([ONE, replace(TWO, times=times)], SETUP).of(frozenset({"one"})) for times in (1, 9)
    )
    assert [(one.at_ns, one.use) for one in quiet] == [(one.at_ns, one.use) for one in loud]


@pytest.mark.parametrize("fair", [True, False])
def test_whatever_is_let_in_ends(fair: bool) -> None:
    crowd = [replace(ONE, name=f"t{n}", rate_per_s=8.0) for n in range(3)]
    outcome = simulate(crowd, replace(SETUP, fair=fair))
    everyone = frozenset(tenant.name for tenant in crowd)
    assert len(outcome.of(everyone)) + outcome.refused(everyone) == len(outcome.asked)
    for one in outcome.of(everyone):
        assert one.said == one.use.output_tokens
        assert one.first_ns is not None
        assert one.done_ns is not None
        assert one.at_ns < one.first_ns <= one.done_ns
    assert outcome.p99_s(everyone) >= outcome.first_p99_s(everyone)


def test_limits_are_those_of_the_gateway() -> None:
    limits = Limits(requests_per_minute=5)
    outcome = simulate([replace(ONE, limits=limits), TWO], SETUP)
    assert len(outcome.of(frozenset({"one"}))) == 5
    assert "5 of 5 requests" in next(one.refused for one in outcome.asked if one.refused)
    assert outcome.refused(frozenset({"two"})) == 0
    never = simulate([replace(ONE, limits=Limits(input_tokens_per_minute=99))], SETUP)
    assert not never.of(frozenset({"one"}))


def test_admission_refuses_what_would_wait_too_long() -> None:
    """Twenty times what the replica can serve: the queue is not let grow beyond patience."""
    flood = [replace(ONE, name=f"t{n}", rate_per_s=300.0) for n in range(4)]
    outcome = simulate(flood, replace(SETUP, lasts_s=15.0))
    everyone = frozenset(tenant.name for tenant in flood)
    assert outcome.refused(everyone) > 1_000
    assert 30 < outcome.p99_s(everyone) < 90  # the patience is 60 s
