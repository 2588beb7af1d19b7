"""Step times in whole femtoseconds: sums of runs are exact."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.physics.step_table import StepTable
from ridgeline.physics.straight_steps import FS
from ridgeline.serving.fake.timing import Machine, Plain, machine
from ridgeline.serving.policy.batch import Chunk, Step
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.pace import Pace, ns_after
from ridgeline.serving.simulate.setup import Engine, Model, Serving
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request

PACE = Pace(machine("llama-3.1-8b", "h100-sxm"))
PLAIN = Machine(Plain(0.01, 0.001, 10_000.0), 1_000)


def decodes(contexts: list[int]) -> Step:
    chunks = tuple(Chunk(str(at), start, 1, True) for at, start in enumerate(contexts))
    return Step(chunks, (), (), (), ())


@given(st.lists(st.integers(1, 50_000), min_size=1, max_size=20), st.integers(1, 60))
def test_a_run_is_the_sum_of_its_steps(contexts, steps):
    single = sum(PACE.step_fs(decodes([one + step for one in contexts])) for step in range(steps))
    assert PACE.run_fs(len(contexts), sum(contexts), steps) == single


@given(st.integers(1, 20), st.integers(0, 10**6), st.integers(1, 50), st.integers(0, 10**17))
def test_steps_within_a_time_are_those_that_have_ended(sequences, cached, steps, within_fs):
    ended = PACE.steps_within(sequences, cached, steps, within_fs)
    assert PACE.run_fs(sequences, cached, ended) <= within_fs or ended == 0
    assert ended == steps or PACE.run_fs(sequences, cached, ended + 1) > within_fs


def test_plain_numbers_are_as_told():
    pace = Pace(PLAIN)
    assert pace.step_fs(decodes([5, 9])) == 12 * FS // 1000
    prompt = Step((Chunk("a", 0, 100, True),), (), (), (), ())
    assert pace.step_fs(prompt) == 20 * FS // 1000
    assert Pace(PLAIN, 3.0).step_fs(prompt) == 60 * FS // 1000


def test_a_bent_machine_is_never_jumped_over_but_is_as_fast():
    bent = Pace(machine("gpt-oss-20b", "h100-sxm"))
    assert not bent.is_straight
    assert bent.step_fs(decodes([100, 20_000])) > bent.step_fs(decodes([100]))


@pytest.mark.parametrize(("fs", "ns"), [(0, 0), (1, 1), (10**6, 1), (10**6 + 1, 2)])
def test_an_event_is_at_the_first_nanosecond_that_is_not_before(fs, ns):
    assert ns_after(fs) == ns


@pytest.mark.parametrize("factor", [0.0, -1.0, 1e7, float("nan")])
def test_a_machine_is_not_so_slow(factor):
    with pytest.raises(ValueError, match="times as slow"):
        Pace(PLAIN, factor)


@given(st.lists(st.integers(1, 5000), min_size=1, max_size=9), st.integers(1, 6))
def test_a_guess_is_a_row_more_that_reads_no_cache_of_its_own(contexts, guesses):
    plain = decodes(contexts)
    guessed = Step(
        tuple(replace(one, count=1 + guesses, guesses=guesses) for one in plain.chunks),
        (), (), (), (),
    )  # fmt: skip
    steps = machine("llama-3.1-8b", "h100-sxm").steps
    rows, cached = float(len(contexts)), float(sum(contexts))
    law_s = steps.step_s(rows, cached, rows * guesses, 0.0)
    assert PACE.step_fs(guessed) == pytest.approx(law_s * FS, rel=1e-7)
    assert PACE.step_fs(guessed) >= PACE.step_fs(plain)


def test_more_time_a_step_is_in_all_of_a_run():
    assert PACE.run_fs(3, 100, 7, 5) == PACE.run_fs(3, 100, 7) + 35
    assert PACE.steps_within(3, 100, 7, PACE.run_fs(3, 100, 4, 10**12), 10**12) == 4
    assert Pace(PLAIN, 3.0).stretched_fs(7) == 21
    assert PACE.stretched_fs(7) == 7


def test_a_prompts_time_is_that_of_a_step_with_it_alone():
    prompt = Step((Chunk("a", 64, 100, True),), (), (), (), ())
    assert PACE.prompt_fs(64, 100) == PACE.step_fs(prompt)


TABLE = StepTable((1, 3, 8, 64), (0.007, 0.0081, 0.0107, 0.031), 1.7e-4, 1.23e-6, 3e-8)


def test_measured_step_times_are_jumped_over_and_nothing_differs():
    machine = Machine(TABLE, 8000)
    assert Pace(machine).is_straight
    requests = [Request(0.013 * n, 20 + 37 * n % 300, 5 + 11 * n % 90) for n in range(60)]
    serving = Serving((Model("m", Engine(machine, max_seqs=12)),))
    jumped, stepped = (
        simulate(replace(serving, jumps=jumps), OpenLoop(requests, "m")) for jumps in (True, False)
    )
    assert jumped.digest == stepped.digest
    assert jumped.replicas[0].busy_s == stepped.replicas[0].busy_s
