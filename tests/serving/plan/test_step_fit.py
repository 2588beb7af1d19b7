"""Step times are found again from what a client would have seen of them."""

import random

import pytest

from ridgeline.errors import BenchError
from ridgeline.physics.step_table import StepTable
from ridgeline.serving.plan.step_fit import NOISE_SD, Counts, Observed, fit_table, prompt_steps

ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
TRUE = StepTable(
    ROWS,
    (0.007, 0.0075, 0.0085, 0.010, 0.013, 0.017, 0.025, 0.044, 0.085, 0.16),
    2e-4,
    1.2e-6,
    3e-8,
)
TRAVEL_S = 0.0035


def seen(steps: tuple[Counts, ...], *, travels: bool = False, noise: float = 1.0) -> Observed:
    took_s = sum(
        TRUE.step_s(
            one.decodes or None,
            one.cached or None,
            one.prompts or None,
            one.pairs / one.prompts if one.prompts else None,
        )
        for one in steps
    )
    return Observed(steps, (took_s + travels * TRAVEL_S) * noise, travels)


def profile(seed: int = 0, spread: float = 0.0) -> list[Observed]:
    chance = random.Random(seed)
    batches = [((Counts(n, 30.0 * n),), False) for n in (1, 2, 4, 8, 16, 32)]
    contexts = [((Counts(n, 270.0 * n),), False) for n in (1, 8)]
    prompts = [(prompt_steps(n, 512), True) for n in (16, 32, 64, 128, 256, 512, 1024)]
    mixed = []
    for count, tokens in ((8, 64), (8, 256), (4, 32), (4, 128)):
        (alone,) = prompt_steps(tokens, 512)
        mixed.append(((Counts(count, 40.0 * count, alone.prompts, alone.pairs),), False))
    return [
        seen(steps, travels=travels, noise=chance.gauss(1.0, spread))
        for steps, travels in 4 * [*batches, *contexts, *prompts, *mixed]
    ]


def test_exact_times_give_the_step_times_back():
    fitted = fit_table(profile(), ROWS)
    assert fitted.rows == ROWS
    for found, true_s in zip(fitted.table.seconds, TRUE.seconds, strict=True):
        assert found == pytest.approx(true_s, rel=0.02)
    assert fitted.cached_s_per_token.value == pytest.approx(TRUE.cached_s_per_token, rel=0.05)
    assert fitted.travel_s.value == pytest.approx(TRAVEL_S, rel=0.1)
    assert max(fitted.errors) < 0.01


def test_with_noise_steps_are_near():
    fitted = fit_table(profile(3, 0.03), ROWS)
    for count in (1, 4, 12, 32):
        assert fitted.table.step_s(count, 100.0 * count) == pytest.approx(
            TRUE.step_s(count, 100.0 * count), rel=0.04
        )


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    """95 %; the noise that the fit assumes is that of the profile, and the curve's parts add up."""
    inside = [
        one.low <= true_s <= one.high
        for seed in range(20)
        for one, true_s in zip(
            fit_table(profile(seed, NOISE_SD), ROWS).curve, TRUE.seconds, strict=True
        )
    ]
    assert sum(inside) >= 0.9 * len(inside)


def test_a_time_that_somebody_else_made_long_moves_little():
    spoilt = profile()
    spoilt[3] = Observed(spoilt[3].steps, 5 * spoilt[3].seconds)
    fitted = fit_table(spoilt, ROWS)
    assert fitted.table.step_s(8, 240.0) == pytest.approx(TRUE.step_s(8, 240.0), rel=0.03)


def test_too_little_is_said_to_be_too_little():
    with pytest.raises(BenchError, match="do not say how long steps take"):
        fit_table(profile()[:5], ROWS)


def test_a_long_prompt_takes_several_steps():
    first, last = prompt_steps(700, 512)
    assert (first.prompts, last.prompts) == (512, 188)
    assert (first.pairs, last.pairs) == (512 * 256, 188 * (512 + 94))
