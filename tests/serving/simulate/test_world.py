"""Whole platforms in virtual time: what holds in every run, whatever goes wrong."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from worlds import clients, engine, model, servings

from ridgeline.errors import SpecError
from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.policy.limits import Limits
from ridgeline.serving.policy.scale import Settings, Step
from ridgeline.serving.simulate.asked import End
from ridgeline.serving.simulate.clients import ClosedLoop, Manners, OpenLoop
from ridgeline.serving.simulate.setup import Fault, Gateway, Scaling, Serving, Tenant, Trouble
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request


@given(servings(), clients())
@settings(deadline=None)
def test_nothing_is_left_over_and_time_goes_forward(serving, make):
    """`simulate` checks blocks, reservations and requests itself."""
    outcome = simulate(serving, make())
    columns = outcome.columns
    assert len(set(columns["number"].tolist())) == outcome.requests, "each ends once"
    done, first, sent, at = (columns[key] for key in ("done_ns", "first_ns", "sent_ns", "at_ns"))
    assert (done >= at).all()
    assert ((sent < 0) | (sent >= at)).all()
    got = first >= 0
    assert (first[got] >= sent[got]).all() or serving.models[0].engine.resumes
    answered = outcome.answered
    assert (columns["cached_tokens"] <= columns["prompt_tokens"]).all()
    assert (columns["said_tokens"][answered] > 0).all()
    assert (columns["end"] != End.OPEN).all()
    assert all(one.busy_s <= one.there_s + 1e-6 for one in outcome.replicas)


@given(servings(), clients())
@settings(deadline=None)
def test_a_jumping_run_is_the_run_step_by_step(serving, make):
    jumped = simulate(serving, make())
    stepped = simulate(replace(serving, jumps=False), make())
    assert jumped.digest == stepped.digest
    for name, column in jumped.columns.items():
        assert np.array_equal(column, stepped.columns[name]), name
    assert [one.steps for one in jumped.replicas] == [one.steps for one in stepped.replicas]


@given(servings(), clients())
@settings(deadline=None, max_examples=30)
def test_the_same_run_twice_is_the_same(serving, make):
    assert simulate(serving, make()).digest == simulate(serving, make()).digest


def some(count: int, *, every_s: float = 0.1, prompt: int = 100, output: int = 20) -> list[Request]:
    return [Request(number * every_s, prompt, output) for number in range(count)]


def test_one_request_takes_its_prompt_and_a_step_for_each_further_token():
    """Plain: 10 ms a step, 0.1 ms a sequence, 20,000 prompt tokens a second."""
    outcome = simulate(Serving((model(),)), OpenLoop(some(1, prompt=1000, output=11), "chat"))
    assert outcome.ttft_s().tolist() == pytest.approx([0.01 + 1000 / 20_000])
    assert outcome.tpot_s().tolist() == pytest.approx([0.0101])
    assert outcome.count(End.ANSWERED) == 1


def test_who_decides_ahead_lets_in_a_step_later_whoever_comes_while_one_runs():
    """10 ms a step: the second comes in the third one and waits for its end and a whole one."""
    on = Machine(Plain(0.01, 0.0, 1e9), 40_000)
    requests = [Request(0.0, 10, 50), Request(0.025, 10, 2)]
    first_s = [
        simulate(
            Serving((model(engine=engine(machine=on, ahead=ahead)),)), OpenLoop(requests, "chat")
        ).ttft_s()
        for ahead in (False, True)
    ]  # fmt: skip
    assert sorted(first_s[0]) == pytest.approx([0.01, 0.015], abs=1e-6)
    assert sorted(first_s[1]) == pytest.approx([0.01, 0.025], abs=1e-6)


def test_what_is_longer_than_the_context_is_refused_and_counted():
    short = model(engine=engine(max_model_len=64))
    outcome = simulate(Serving((short,)), OpenLoop(some(3, prompt=60), "chat"))
    assert outcome.count(End.TOO_LONG) == 3


def test_a_limit_refuses_and_a_client_that_comes_again_gets_its_answer():
    tenant = Tenant("", limits=Limits(concurrent=1))
    serving = Serving((model(),), (tenant,))
    refused = simulate(serving, OpenLoop(some(4, every_s=0.01), "chat"))
    assert (refused.count(End.ANSWERED), refused.count(End.REFUSED)) == (1, 3)
    again = OpenLoop(some(4, every_s=0.01), "chat", manners=Manners(retries=5))
    assert simulate(serving, again).count(End.ANSWERED) == 4


def test_a_closed_loop_keeps_as_many_in_flight():
    outcome = simulate(Serving((model(),)), ClosedLoop(some(20), "chat", 4))
    starts = np.sort(outcome.columns["at_ns"])
    assert (starts[:4] == 0).all()
    assert (np.sort(outcome.columns["done_ns"])[: len(starts) - 4] <= starts[4:]).all()


def test_who_leaves_frees_what_he_had():
    leaving = OpenLoop(some(5, output=500), "chat", manners=Manners(whole_s=1.0))
    outcome = simulate(Serving((model(),)), leaving)
    assert outcome.count(End.LEFT) == 5
    assert outcome.columns["said_tokens"].max() < 110


def test_a_replica_that_dies_loses_what_runs_and_is_started_anew():
    fault = Fault(0.3, Trouble.DIES, "chat", 0)
    one = model(replicas=2, start_s={"start": 2.0}, rule="round-robin")
    serving = Serving((one,), faults=(fault,))
    outcome = simulate(serving, OpenLoop(some(60, every_s=0.1), "chat"))
    broken = outcome.count(End.BROKEN)
    assert 0 < broken < 8
    assert outcome.count(End.ANSWERED) == 60 - broken
    assert len(outcome.replicas) == 3
    resuming = replace(one, engine=replace(one.engine, resumes=True))
    whole = simulate(replace(serving, models=(resuming,)), OpenLoop(some(60), "chat"))
    assert whole.count(End.ANSWERED) == 60


def test_a_slow_node_is_slow_for_as_long():
    fault = Fault(0.0, Trouble.SLOW, "chat", 0, lasts_s=1.0, factor=3.0)
    outcome = simulate(Serving((model(),), faults=(fault,)), OpenLoop(some(30), "chat"))
    ttft_s = outcome.ttft_s()[np.argsort(outcome.columns["at_ns"])]
    assert ttft_s[2] > 2.5 * ttft_s[-1]


def test_scaling_follows_the_demand_and_holds_requests_while_none_is_there():
    settings_ = Settings(0, 4, 2.0, up=Step(4, 1.0), down_after_s=5.0, zero_after_s=10.0)
    one = model(replicas=0, scaling=Scaling(settings_), start_s={"start": 3.0})
    requests = [*some(40, every_s=0.05, output=100), Request(60.0, 10, 5)]
    outcome = simulate(Serving((one,), gateway=Gateway(hold_s=5.0)), OpenLoop(requests, "chat"))
    assert outcome.count(End.ANSWERED) == 41
    assert outcome.ttft_s().min() > 0.01
    counts = [count for _, _, count, _ in outcome.scaled]
    assert max(counts) == 4
    assert 0 in counts, "to zero before the last one"
    assert outcome.ttft_s().max() >= 3.0, "it waited for a start"


def test_a_fault_of_a_model_that_is_not_there_is_an_error():
    fault = Fault(1.0, Trouble.DIES, "other")
    with pytest.raises(SpecError, match="other"):
        simulate(Serving((model(),), faults=(fault,)), OpenLoop(some(1), "chat"))


@given(servings(), clients())
@settings(deadline=None, max_examples=50)
def test_gaps_are_the_same_with_jumps_and_change_nothing(serving, make):
    serving = replace(serving, gaps=True)
    jumped = simulate(serving, make())
    stepped = simulate(replace(serving, jumps=False), make())
    assert np.array_equal(jumped.columns["gap_ns"], stepped.columns["gap_ns"])
    assert simulate(replace(serving, gaps=False), make()).digest == jumped.digest


def test_a_gap_is_as_long_as_the_step_that_a_long_prompt_takes():
    """2,048 tokens at 20,000 a second, the fixed part, and one decode."""
    requests = [Request(0.0, 16, 200), Request(0.5, 8192, 1)]
    one = model(engine=engine(max_batched_tokens=2048))
    outcome = simulate(Serving((one,), gaps=True), OpenLoop(requests, "chat"))
    assert outcome.gap_s().max() == pytest.approx(0.01 + 0.0001 + 2047 / 20_000)
