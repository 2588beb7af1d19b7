"""Requests of a seeded workload, with times or without."""

from collections.abc import Iterator

import numpy as np

from ridgeline.workload.arrivals import Arrivals
from ridgeline.workload.request import Request
from ridgeline.workload.sizes import Sizes


def synthetic(
    arrivals: Arrivals, prompt: Sizes, output: Sizes, *, rate_per_s: float, seed: int
) -> Iterator[Request]:
    """Endless requests of a seeded workload, in order of arrival."""
    times = arrivals.times_s(rate_per_s, seed)
    for at_s, (prompt_tokens, output_tokens) in zip(
        times, _sizes(prompt, output, seed), strict=False
    ):
        yield Request(at_s, prompt_tokens, output_tokens)


def sized(prompt: Sizes, output: Sizes, *, seed: int) -> Iterator[Request]:
    """Endless requests that have sizes and no time (all at 0): what a closed loop needs."""
    for prompt_tokens, output_tokens in _sizes(prompt, output, seed):
        yield Request(0.0, prompt_tokens, output_tokens)


def _sizes(prompt: Sizes, output: Sizes, seed: int) -> Iterator[tuple[int, int]]:
    prompts = prompt.draw(np.random.default_rng([seed, 1]))
    outputs = output.draw(np.random.default_rng([seed, 2]))
    return zip(prompts, outputs, strict=False)
