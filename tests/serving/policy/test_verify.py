"""Accept or resample: what leaves is the target's, summed exactly and drawn a million times."""

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ridgeline.serving.policy.verify import Verdict, acceptance, draw, residual, verify

PAIRS = 200
SAMPLES = 1_000_000
CHI_SQUARE_MOST = {3: 16.27, 7: 24.32}
"""What 1 in 1,000 honest samples exceeds, by degrees of freedom."""

Law = dict[tuple[int, ...], float]


def distribution(chance: np.random.Generator, words: int) -> list[float]:
    """A random one; some have words that never come, some only one that does."""
    weights = chance.dirichlet(np.full(words, chance.choice([0.05, 0.5, 2.0])))
    weights[weights < 1e-3] = 0.0
    return (weights / weights.sum()).tolist()


def law(
    guesses: Sequence[int], drafts: list[list[float]], targets: list[list[float]], start: int = 0
) -> Law:
    """The chance of all that `verify` can emit for these guesses: an integral over its chances.

    `verify` is constant between the borders at which a guess fails or another word is drawn: that
    is looked at beside the borders. So what it says there, times the distance, is the integral.
    """
    thresholds = [
        min(1.0, target[guess] / draft[guess])
        for guess, draft, target in zip(guesses, drafts, targets, strict=False)
    ]
    drawn_from = [targets[-1]] + [
        residual(target, draft)
        for draft, target in zip(drafts, targets, strict=False)
        if acceptance(target, draft) < 1 - 1e-9
    ]
    draws = sorted({0.0, 1.0, *(b for each in drawn_from for b in np.cumsum(each) if b < 1)})
    sides = [[(0.0, t), (t, 1.0)] for t in thresholds] + [list(itertools.pairwise(draws))]
    emitted: Law = {}
    for region in itertools.product(*sides):
        width = np.prod([high - low for low, high in region])
        if width <= 0:
            continue
        # Where two borders are one but for rounding, only the middle lies surely between them.
        wide = all(high - low > 1e-9 for low, high in region)
        places = (0.5, 1e-6, 1 - 1e-6) if wide else (0.5,)
        inside = [[a + at * (b - a) for a, b in region] for at in places]
        verdict, *others = (verify(guesses, drafts, targets, at, start) for at in inside)
        assert all(other == verdict for other in others)
        assert verdict.computed == start + 1 + verdict.accepted
        said = (*guesses[: verdict.accepted], verdict.token)
        emitted[said] = emitted.get(said, 0.0) + float(width)
    return emitted


@pytest.mark.proves("S038")
def test_what_is_emitted_sums_to_the_target_to_a_millionth_of_a_millionth() -> None:
    chance = np.random.default_rng(38)
    for _ in range(PAIRS):
        words = int(chance.integers(2, 12))
        target, draft, behind = (distribution(chance, words) for _ in range(3))
        emitted = np.zeros(words)
        for guess in range(words):
            if draft[guess]:
                for said, share in law([guess], [draft], [target, behind]).items():
                    emitted[said[0]] += draft[guess] * share
        assert np.abs(emitted - target).max() < 1e-12


@pytest.mark.proves("S038")
def test_each_of_several_tokens_follows_the_targets_distribution_behind_those_before_it() -> None:
    chance, words = np.random.default_rng(39), 3
    for _ in range(20):
        # What comes at a position depends on all that was said before it.
        target = {said: distribution(chance, words) for said in prefixes(words, 2)}
        draft = {said: distribution(chance, words) for said in prefixes(words, 1)}
        joint: Law = {}
        for guesses in itertools.product(range(words), repeat=2):
            before = [guesses[:at] for at in range(3)]
            share = draft[()][guesses[0]] * draft[guesses[:1]][guesses[1]]
            if not share:
                continue
            drafts, targets = [draft[b] for b in before[:2]], [target[b] for b in before]
            for said, inner in law(guesses, drafts, targets, start=7).items():
                joint[said] = joint.get(said, 0.0) + share * inner
        for prefix in prefixes(words, 2):
            reached = sum(share for said, share in joint.items() if longer(said, prefix))
            for word in range(words):
                there = sum(
                    p for s, p in joint.items() if longer(s, prefix) and s[len(prefix)] == word
                )
                assert there == pytest.approx(reached * target[prefix][word], abs=1e-12)


def prefixes(words: int, longest: int) -> list[tuple[int, ...]]:
    return [p for n in range(longest + 1) for p in itertools.product(range(words), repeat=n)]


def longer(said: tuple[int, ...], prefix: tuple[int, ...]) -> bool:
    return len(said) > len(prefix) and said[: len(prefix)] == prefix


@pytest.mark.proves("S038")
def test_a_million_tokens_pass_chi_square_tests_of_what_they_are_and_how_far_guesses_held() -> None:
    """Each token that leaves is a draw from the target of its own, whichever position it is at."""
    chance, words, guessed, start = np.random.default_rng(40), 8, 3, 5
    target, draft = chance.dirichlet(np.full(words, 2.0), size=2).tolist()
    drafts, targets = [draft] * guessed, [target] * (guessed + 1)
    counts, lengths, emitted = [0] * words, [0] * (guessed + 1), 0
    while emitted < SAMPLES:
        guesses = chance.choice(words, p=draft, size=(50_000, guessed)).tolist()
        chances = chance.random((50_000, guessed + 1)).tolist()
        for row, numbers in zip(guesses, chances, strict=True):
            verdict = verify(row, drafts, targets, numbers, start)
            assert verdict.computed == start + 1 + verdict.accepted
            for token in row[: verdict.accepted]:
                counts[token] += 1
            counts[verdict.token] += 1
            lengths[verdict.accepted] += 1
            emitted += 1 + verdict.accepted
    assert chi_square(counts, target) < CHI_SQUARE_MOST[words - 1]
    held = acceptance(target, draft)
    shares = [held**length * (1 - held) for length in range(guessed)] + [held**guessed]
    assert chi_square(lengths, shares) < CHI_SQUARE_MOST[guessed]


def chi_square(counts: Sequence[int], shares: Sequence[float]) -> float:
    total = sum(counts)
    return sum((n - total * p) ** 2 / (total * p) for n, p in zip(counts, shares, strict=True))


@given(st.integers(0, 2**32), st.integers(2, 20))
def test_for_a_guess_without_chance_to_draw_and_compare_is_the_same(seed: int, words: int) -> None:
    """Why the engine may draw as ever and look whether it was the guess: equal joint chances."""
    chance = np.random.default_rng(seed)
    target, guess = distribution(chance, words), int(chance.integers(words))
    certain = [float(word == guess) for word in range(words)]
    emitted = law([guess], [certain], [target, target])
    for word in range(words):
        alone = emitted.get((word,), 0.0)
        behind = sum(p for said, p in emitted.items() if len(said) == 2 and said[0] == word)
        drawn = target[word]
        assert (alone, behind) == pytest.approx(
            (0.0, drawn) if word == guess else (drawn, 0.0), abs=1e-12
        )


def test_a_guess_that_draft_and_target_find_impossible_does_not_hold() -> None:
    verdict = verify([0], [[0.0, 0.0, 1.0]], [[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]], [0.5, 0.5])
    assert verdict == Verdict(0, 1, 1)


def test_a_draw_takes_what_its_chance_falls_on_and_never_what_has_none() -> None:
    assert [draw([0.0, 0.5, 0.0, 0.5, 0.0], c) for c in (0.0, 0.49, 0.5, 0.99)] == [1, 1, 3, 3]
    assert draw([0.5, 0.5 - 1e-9, 0.0], 1 - 1e-12) == 1
