"""Seeded requests."""

from itertools import islice

import pytest

from ridgeline.workload import Arrivals, Request, Sizes, parse_sizes, sized, synthetic

POISSON = Arrivals("Poisson", 1.0)


def first(count: int, prompt: str, output: str, *, seed: int, rate: float = 2.0) -> list[Request]:
    sizes = (parse_sizes(text, where="") for text in (prompt, output))
    return list(islice(synthetic(POISSON, *sizes, rate_per_s=rate, seed=seed), count))


def test_the_same_seed_gives_the_same_requests():
    assert first(300, "normal:128:32", "64", seed=7) == first(300, "normal:128:32", "64", seed=7)


def test_another_seed_gives_other_arrivals():
    assert first(5, "128", "64", seed=7) != first(5, "128", "64", seed=8)


def test_changing_sizes_leaves_arrivals_as_they_were():
    times = [[r.at_s for r in first(50, prompt, "64", seed=1)] for prompt in ("9", "uniform:1:99")]
    assert times[0] == times[1]


def test_a_faster_rate_is_the_same_pattern_in_less_time():
    slow, fast = first(50, "1", "1", seed=1, rate=1.0), first(50, "1", "1", seed=1, rate=4.0)
    assert [r.at_s / 4 for r in slow] == pytest.approx([r.at_s for r in fast])


def test_a_closed_loop_needs_sizes_only():
    requests = list(islice(sized(Sizes("fixed", 3), Sizes("fixed", 4), seed=0), 2))
    assert requests == [Request(0.0, 3, 4)] * 2
