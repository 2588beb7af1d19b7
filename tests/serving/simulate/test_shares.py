"""What bound when: all time of engines that are ready, each second of it once."""

import numpy as np
import pytest
from hypothesis import given, settings
from worlds import clients, engine, model, servings

from ridgeline.serving.fake.timing import Machine, Plain, machine
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.series import Series
from ridgeline.serving.simulate.setup import Serving
from ridgeline.serving.simulate.shares import CAUSES, together, what_bound
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request


def bound(one, requests):
    """The shares of one model's replicas."""
    outcome = simulate(Serving((one,)), OpenLoop(requests, "chat"), series=Series())
    return what_bound(outcome, "chat")


@given(servings(), clients())
@settings(deadline=None, max_examples=50)
def test_every_second_of_a_ready_engine_has_one_cause(serving, make):
    outcome = simulate(serving, make(), series=Series())
    for kind in outcome.series.kinds:
        told = what_bound(outcome, kind)
        there_s = outcome.series.looks(kind).there_s[-1]
        total = sum(values.sum() for values in told.by_s.values())
        # A step that spans two stretches is counted where it ends: by so much idling is off.
        assert total >= there_s - 1e-6
        assert all((values >= -1e-9).all() for values in told.by_s.values())
        assert sum(told.shares.values()) == pytest.approx(1.0 if total else 0.0)


def test_an_empty_platform_idles():
    assert bound(model(), [Request(9.0, 10, 1)]).shares["idle"] > 0.99


def test_too_few_slots_make_a_queue():
    shares = bound(model(slots=2), [Request(0.0, 100, 200) for _ in range(20)]).shares
    assert shares["queue"] > 0.85


def test_too_few_blocks_bind_the_cache():
    few = Machine(Plain(0.01, 0.0, 1e9), 40 * 16)
    shares = bound(model(engine=engine(machine=few)), [Request(0.0, 100, 200)] * 20).shares
    assert max(shares, key=shares.get) == "kv"


def test_decodes_wait_for_memory_and_prompts_for_arithmetic():
    on = machine("llama-3.1-8b", "h100-sxm")
    fast = model(engine=engine(machine=on, max_batched_tokens=8192))
    decodes = bound(fast, [Request(0.0, 16, 400)] * 4).shares
    prompts = bound(fast, [Request(0.0, 8000, 1)] * 4).shares
    assert max(decodes, key=decodes.get) == "bandwidth"
    assert max(prompts, key=prompts.get) == "compute"


def test_parts_add_up():
    one = bound(model(), [Request(0.0, 100, 50)])
    both = together([one, one])
    assert list(both.by_s) == list(CAUSES)
    assert np.allclose(both.by_s["fixed"], 2 * one.by_s["fixed"])
    assert both.shares == pytest.approx(one.shares)
