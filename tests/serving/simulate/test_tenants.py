"""Tenants in virtual time: the books balance, and the world is the same for everybody."""

from dataclasses import replace

import numpy as np
import pytest

from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.policy.limits import Limits
from ridgeline.serving.simulate.asked import End
from ridgeline.serving.simulate.outcome import Outcome, percentile
from ridgeline.serving.simulate.tenants import Setup, Tenant, of, shared, tokens
from ridgeline.workload import Sizes

SETUP = Setup(Machine(Plain(fixed_s=0.01), 100_000), slots=8, lasts_s=20.0, seed=7)
ONE = Tenant("one", 2.0, Sizes("fixed", 100), Sizes("fixed", 20))
TWO = replace(ONE, name="two", prompt=Sizes("lognormal", 100, 1.0))


def asked(outcome: Outcome, name: str) -> list[tuple[int, int]]:
    """When, and how much, in order of number."""
    columns = of(outcome, frozenset({name})).columns
    order = np.argsort(columns["number"])
    return list(zip(columns["at_ns"][order], columns["prompt_tokens"][order], strict=True))


def test_a_request_alone_takes_its_steps() -> None:
    alone = shared([replace(ONE, rate_per_s=0.2)], SETUP)
    # One step with the prompt gives the first token, 19 more the others.
    assert alone.ttft_s()[0] == pytest.approx(0.01 + 100 / 20_000, abs=1e-6)
    assert alone.e2e_s()[0] == pytest.approx(0.2 + 100 / 20_000, abs=1e-6)


def test_the_same_seed_gives_the_same_run() -> None:
    assert shared([ONE, TWO], SETUP).digest == shared([ONE, TWO], SETUP).digest
    other = shared([ONE], replace(SETUP, seed=8))
    assert asked(other, "one") != asked(shared([ONE], SETUP), "one")


def test_one_tenant_does_not_change_what_the_others_ask() -> None:
    quiet, loud = (shared([ONE, replace(TWO, times=times)], SETUP) for times in (1, 9))
    assert asked(quiet, "one") == asked(loud, "one")
    assert tokens(of(quiet, frozenset({"one"}))) == tokens(of(loud, frozenset({"one"})))
    assert asked(quiet, "two") != asked(loud, "two")


@pytest.mark.parametrize("fair", [True, False])
def test_whatever_is_let_in_ends(fair: bool) -> None:
    crowd = [replace(ONE, name=f"t{n}", rate_per_s=8.0) for n in range(3)]
    outcome = shared(crowd, replace(SETUP, fair=fair))
    answered, columns = outcome.answered, outcome.columns
    assert answered.sum() + outcome.count(End.REFUSED) == outcome.requests
    assert (columns["said_tokens"][answered] == 20).all()
    assert (columns["at_ns"] < columns["first_ns"])[answered].all()
    assert (columns["first_ns"] <= columns["done_ns"])[answered].all()
    assert tokens(outcome) == 120 * answered.sum()


def test_with_fair_turns_who_asks_little_does_not_wait_behind_who_asks_much() -> None:
    flood = replace(ONE, name="flood", rate_per_s=60.0)
    few = frozenset({"one"})
    fair, line = (shared([ONE, flood], replace(SETUP, fair=fair)) for fair in (True, False))
    assert percentile(of(fair, few).ttft_s(), 0.5) < 0.3 * percentile(of(line, few).ttft_s(), 0.5)


def test_limits_are_those_of_the_gateway() -> None:
    limits = Limits(requests_per_minute=5)
    outcome = shared([replace(ONE, limits=limits), TWO], SETUP)
    one, two = (of(outcome, frozenset({name})) for name in ("one", "two"))
    assert one.answered.sum() == 5
    assert one.count(End.REFUSED) == one.requests - 5 > 0
    assert two.answered.sum() == two.requests
    never = shared([replace(ONE, limits=Limits(input_tokens_per_minute=99))], SETUP)
    assert not never.answered.any()


def test_admission_refuses_what_would_wait_too_long() -> None:
    """Twenty times what the replica can serve: the queue is not let grow beyond patience."""
    flood = [replace(ONE, name=f"t{n}", rate_per_s=300.0) for n in range(4)]
    outcome = shared(flood, replace(SETUP, lasts_s=15.0))
    assert outcome.count(End.REFUSED) > 1_000
    assert 30 < percentile(outcome.e2e_s(), 0.99) < 90  # the patience is 60 s
