"""What `bench/sim_vs_live.py` asks and how it judges, without an engine."""

import numpy as np
import pytest

from ridgeline.platform.simulated import serving_of
from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.simulate.setup import Serving
from ridgeline.spec import load
from sim_vs_live import (
    BLOCK_TOKENS,
    SHARED_BLOCKS,
    SHARED_KINDS,
    Setup,
    Times,
    capacity_per_s,
    drawn,
    rows_of,
    simulated,
)


@pytest.fixture
def serving(tmp_path) -> Serving:
    spec = load(Setup(2, 1).spec(tmp_path))
    return serving_of(spec, machines={"live": Machine(Plain(0.02, 0.001, 5000.0), 40_000)})


def test_a_window_is_the_same_for_the_same_seed_and_name():
    one, same, other = (drawn("w", seed, 5.0, 20.0, shared=True) for seed in (1, 1, 2))
    assert one == same
    assert one.requests != other.requests
    assert all(0 < request.at_s < 20 for request in one.requests)


def test_shared_beginnings_are_few_and_the_rest_is_everybodys_own():
    requests = drawn("w", 1, 20.0, 20.0, shared=True).requests
    beginnings = {request.blocks[:SHARED_BLOCKS] for request in requests}
    assert len(beginnings) == SHARED_KINDS
    own = [block for request in requests for block in request.blocks[SHARED_BLOCKS:]]
    assert len(own) == len(set(own))
    assert not set(own) & {block for some in beginnings for block in some}
    assert all(len(one.blocks) == one.prompt_tokens // BLOCK_TOKENS for one in requests)
    cold = drawn("w", 1, 20.0, 20.0, shared=False).requests
    assert len({block for one in cold for block in one.blocks}) == sum(
        len(one.blocks) for one in cold
    )


def test_a_window_is_simulated_whole_and_below_capacity(serving):
    capacity = capacity_per_s(serving, 20.0, 1, shared=False)
    window = drawn("w", 1, 0.5 * capacity, 20.0, shared=False)
    times = simulated(serving, window)
    assert len(times["TTFT"]) == len(window.requests)
    assert (times["E2E"] >= times["TTFT"]).all()
    assert times["TPOT"].min() >= 21.0  # ms: a step of one sequence at least
    busy = capacity_per_s(serving, 20.0, 1, shared=True)
    assert 0 < busy < capacity  # longer prompts, of which a first one is computed


def made(scale: float) -> Times:
    some = np.linspace(50.0, 150.0, 101)
    return dict.fromkeys(("TTFT", "TPOT", "E2E"), scale * some) | {
        "throughput": np.array([100.0 / scale])
    }


@pytest.mark.parametrize(
    ("ours", "live", "ok"),
    [
        (1.03, (1.0, 1.0), {True}),
        (1.08, (1.0, 1.0), {True, False}),  # a median is short, a p99 is not
        (0.80, (1.0, 1.0), {False}),
        (1.08, (1.0, 1.12), {True}),  # as far as two live runs are from each other
    ],
)
def test_an_error_is_allowed_by_its_target_or_by_what_live_runs_differ(ours, live, ok):
    rows = rows_of("w", made(ours), [made(one) for one in live])
    assert {row.ok for row in rows} == ok
    assert [row.case.partition(" (")[0] for row in rows[:3]] == [
        "w: TTFT p50", "w: TTFT p90", "w: TTFT p99",
    ]  # fmt: skip


def test_a_row_says_how_far_two_live_runs_are_from_each_other():
    row = rows_of("w", made(1.0), [made(1.0), made(1.1)])[0]
    assert "live twice: 10.0%" in row.case
    assert row.ratio == pytest.approx(1 / 1.05)
