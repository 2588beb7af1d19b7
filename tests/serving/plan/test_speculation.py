"""Speculative decoding: lengths against simulations, the free batch, the choice of method."""

import numpy as np
import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

TRIALS = 200_000


@pytest.mark.proves("S179")
def test_four_guesses_at_0_7_keep_2_77_tokens_and_are_free_to_a_batch_of_59():
    values = ask("speculative-decoding", {"drafts": 4, "acceptance": "0.7"}).answer.values
    assert values["tokens_per_step"].value == pytest.approx(2.77, rel=0.01)
    assert values["free_batch"].value == 59
    assert values["critical_batch"].value == pytest.approx(295, rel=0.01)


@pytest.mark.proves("S179")
def test_past_the_free_batch_a_step_costs_more_and_the_speedup_falls():
    at = {
        batch: ask("speculative-decoding", {"batch": batch, "draft_cost": "0"}).answer.values
        for batch in (1, 59, 118)
    }
    assert at[1]["step_cost"].value == at[59]["step_cost"].value == 1
    assert at[118]["step_cost"].value == pytest.approx(118 * 5 / 295.34, rel=1e-3)
    assert at[118]["speedup"].value < at[59]["speedup"].value


def chain(acceptance, drafts, random):
    """A draft model: guesses hold one after the other until the first that does not."""
    held = random.random((TRIALS, drafts)) < acceptance
    return 1 + np.cumprod(held, axis=1).sum(axis=1).mean()


def tree(acceptances, candidates, random):
    """The target's token has a rank among the drafter's candidates; deeper only below a match."""
    kept, alive = np.ones(TRIALS), np.ones(TRIALS, bool)
    for acceptance in acceptances:
        rank = random.geometric(acceptance, TRIALS)  # 1 is the best candidate
        alive &= rank <= candidates
        kept += alive
    return kept.mean()


GIVEN = {
    "drafts": 5, "acceptance": "0.72", "draft_cost": "0.08",
    "head_acceptance": "0.62", "head_fade": "0.85", "head_cost": "0.01", "head_candidates": 3,
    "feature_acceptance": "0.78", "feature_cost": "0.03", "feature_candidates": 2,
}  # fmt: skip


@pytest.mark.proves("S068")
def test_every_method_keeps_what_a_simulation_keeps():
    random = np.random.default_rng(7)
    values = ask("speculation-method", GIVEN).answer.values
    simulated = {
        "draft": chain(0.72, 5, random),
        "heads": tree([0.62 * 0.85**depth for depth in range(5)], 3, random),
        "features": tree([0.78] * 5, 2, random),
    }
    for method, length in simulated.items():
        assert values[f"{method}_length"].value == pytest.approx(length, rel=0.02), method


@pytest.mark.proves("S068")
def test_a_rejection_sampler_with_real_distributions_keeps_as_much_as_the_formula():
    """Acceptance is the overlap of both distributions, and what is kept follows the target's."""
    random = np.random.default_rng(11)
    p, q = random.dirichlet(np.ones(20)), random.dirichlet(np.ones(20))
    overlap = np.minimum(p, q).sum()
    rest = np.maximum(p - q, 0) / np.maximum(p - q, 0).sum()
    guesses = random.choice(20, (TRIALS, 4), p=q)
    held = random.random((TRIALS, 4)) < np.minimum(1, p[guesses] / q[guesses])
    kept = np.cumprod(held, axis=1).sum(axis=1)
    first = np.where(held[:, 0], guesses[:, 0], random.choice(20, TRIALS, p=rest))
    given = {"drafts": 4, "acceptance": repr(float(overlap))}
    length = ask("speculative-decoding", given).answer.values["tokens_per_step"].value
    assert length == pytest.approx(1 + kept.mean(), rel=0.02)
    assert np.bincount(first, minlength=20) / TRIALS == pytest.approx(p, abs=0.005)


@pytest.mark.proves("S068")
def test_methods_are_ranked_by_accepted_length_per_draft_cost_and_one_is_picked():
    random = np.random.default_rng(8)
    answer = ask("speculation-method", GIVEN).answer
    costs = {"draft model": 5 * 0.08, "multi-head": 5 * 0.01, "feature-level tree": 5 * 0.03}
    lengths = {
        "draft model": chain(0.72, 5, random),
        "multi-head": tree([0.62 * 0.85**depth for depth in range(5)], 3, random),
        "feature-level tree": tree([0.78] * 5, 2, random),
    }
    by_hand = sorted(costs, key=lambda name: -lengths[name] / costs[name])
    assert [row["method"] for row in answer.table] == by_hand
    fastest = max(answer.table, key=lambda row: row["speedup"].value)
    assert answer.says.startswith(f"{fastest['method']} is fastest")
    assert answer.values["speedup"].value == fastest["speedup"].value


def test_wide_trees_lose_at_large_batches():
    alone = ask("speculation-method", {"batch": 1}).answer
    busy = ask("speculation-method", {"batch": 200}).answer
    assert alone.says.startswith("feature-level tree is fastest")
    assert busy.says.startswith("draft model is fastest")


def test_a_certain_guess_is_refused():
    with pytest.raises(SpecError, match="too large"):
        ask("speculative-decoding", {"acceptance": "1"})


@pytest.mark.parametrize("option", sorted(set(GIVEN) - {"drafts"}))
def test_no_option_of_a_method_is_accepted_and_then_ignored(option):
    def told(given):
        rows = ask("speculation-method", given).answer.table
        return [(row["speedup"].value, row["accepted length"].value) for row in rows]

    value = GIVEN[option]
    other = value + 1 if isinstance(value, int) else repr(float(value) * 1.1)
    assert told(GIVEN | {option: other}) != told(GIVEN)
