"""Whoever was preempted finds his own blocks again: those are no cached prompt."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import engine, engines, model

from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.setup import Serving
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request


def apart(sizes: list[tuple[float, int, int]]) -> list[Request]:
    """Requests (at, prompt, output) that have nothing in common."""
    return [
        Request(at_s, prompt, output, tuple(1000 * (n + 1) + at for at in range(prompt // 16)))
        for n, (at_s, prompt, output) in enumerate(sizes)
    ]


def test_who_is_preempted_in_the_middle_of_a_prompt_had_nothing_cached():
    """Found by chance: the last one is sent back, and finds 64 tokens of its own again."""
    sizes = [(0.0, 69, 123), (0.0, 96, 18), (0.0, 165, 57), (0.6, 27, 141), (0.8, 283, 71)]
    tight = Machine(Plain(0.01, 0.0, 20_000.0), 35 * 16)
    one = model(engine=engine(machine=tight, max_seqs=8, max_batched_tokens=8))
    outcome = simulate(Serving((one,)), OpenLoop(apart(sizes), "chat", block_tokens=16))
    assert sum(replica.preemptions for replica in outcome.replicas) > 0
    assert not outcome.columns["cached_tokens"].any()


@given(engines(), st.lists(st.tuples(st.integers(1, 300), st.integers(1, 200)), min_size=2))
@settings(deadline=None, max_examples=200)
def test_prompts_that_have_nothing_in_common_have_nothing_cached(on, sizes):
    requests = apart([(0.01 * n, *size) for n, size in enumerate(sizes)])
    one = model(engine=replace(on, prefix_caching=True))
    outcome = simulate(Serving((one,)), OpenLoop(requests, "chat", block_tokens=16))
    assert not outcome.columns["cached_tokens"].any()
