"""The draw, in every way there is, against a plain float64 implementation that sorts everything."""

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from ways_to_draw import WAYS, draw_rows, probabilities

from ridgeline.kernels.draws import Row
from ridgeline.serving.engine import draw

RULES = st.builds(
    lambda temperature, min_p, top_k, top_p: Row(
        0, temperature=temperature, min_p=min_p, top_k=top_k, top_p=top_p
    ),
    st.sampled_from([0.3, 0.7, 1.0, 2.0]),
    st.sampled_from([0.0, 0.02, 0.3, 1.0]),
    st.sampled_from([0, 1, 3, 40, 10**6]),
    st.sampled_from([1.0, 0.97, 0.8, 0.5, 0.0]),
)
every_way = pytest.mark.parametrize("way", WAYS)


def drawn(way: str, logits: Any, rules: Row, chances: Any) -> list[int]:
    rows = [rules._replace(chance=float(chance)) for chance in chances]
    return [each.token for each in draw_rows(way, logits[None], rows)]


def check_every_share(way: str, logits: Any, rules: Row) -> None:
    probability, margin = probabilities(logits, rules)
    assume(margin > 1e-6)
    tokens = np.flatnonzero(probability > 1e-4)[:200]
    middles = np.cumsum(probability)[tokens] - probability[tokens] / 2
    assert drawn(way, logits, rules, middles) == tokens.tolist()
    assert all(probability[token] > 0 for token in drawn(way, logits, rules, (0.0, 1 - 2**-53)))


@every_way
@settings(deadline=None)
@given(st.integers(1, 700), st.integers(0, 2**32), st.floats(0.1, 6), RULES, st.booleans())
def test_every_token_is_drawn_for_exactly_its_share_of_chance(
    way: str, size: int, seed: int, spread: float, rules: Row, masked: bool
) -> None:
    random = np.random.default_rng(seed)
    logits = (random.standard_normal(size) * spread).astype(np.float32)
    if masked:
        logits[random.random(size) < 0.5] = -np.inf
        logits[random.integers(size)] = 1.0
    check_every_share(way, logits, rules)


@every_way
@settings(deadline=None, max_examples=60)
@given(st.integers(1, 300), st.integers(0, 2**32), st.integers(1, 4), RULES)
def test_ties_are_decided_as_in_the_reference(
    way: str, size: int, seed: int, values: int, rules: Row
) -> None:
    logits = np.random.default_rng(seed).integers(0, values, size).astype(np.float32)
    check_every_share(way, logits, rules)


@every_way
@pytest.mark.parametrize("spread", [0.5, 4.0])
@pytest.mark.parametrize(
    "rules",
    [
        Row(0, temperature=1),
        Row(0, temperature=0.7, top_p=0.93),
        Row(0, temperature=1, top_p=0.93, top_k=50),
        Row(0, temperature=1, top_p=0.93, min_p=0.01),
        Row(0, temperature=1.5, top_p=0.999),
        Row(0, temperature=1, top_k=40_000),
    ],
)
def test_a_large_vocabulary_of_uneven_size(way: str, rules: Row, spread: float) -> None:
    logits = (np.random.default_rng(5).standard_normal(50_003) * spread).astype(np.float32)
    probability, _ = probabilities(logits, rules)
    tokens = [token for token in np.argsort(-probability)[:100] if probability[token] > 1e-5]
    middles = np.cumsum(probability)[tokens] - probability[tokens] / 2
    assert drawn(way, logits, rules, middles) == tokens


@every_way
def test_of_equals_at_the_edge_of_the_nucleus_the_lower_ids_stay(way: str) -> None:
    rules = Row(0, temperature=1, top_p=0.5)
    assert set(drawn(way, np.zeros(4, np.float32), rules, (0.0, 0.3, 0.6, 0.99))) == {0, 1}


@every_way
def test_top_k_keeps_all_that_tie_with_the_last(way: str) -> None:
    logits = np.array([0, 2, 1, 1, 1], np.float32)
    rules = Row(0, temperature=1, top_k=2)
    assert set(drawn(way, logits, rules, np.arange(100) / 100)) == {1, 2, 3, 4}


@settings(deadline=None)
@given(st.integers(1, 5_000), st.integers(0, 2**32), st.integers(1, 60), st.booleans())
def test_kth_largest_and_largest_agree_with_a_sort(
    size: int, seed: int, k: int, coarse: bool
) -> None:
    values = np.random.default_rng(seed).standard_normal(size).astype(np.float32)
    if coarse:
        values = np.round(values)
    assume(k <= size)
    order = np.argsort(-values, kind="stable")
    assert draw.kth_largest(values, k) == values[order[k - 1]]
    assert draw.largest(values, k).tolist() == order[:k].tolist()


def test_more_alternatives_than_tokens_are_all_tokens() -> None:
    values = np.array([1, 3, 2], np.float32)
    assert draw.largest(values, 20).tolist() == [1, 2, 0]
    assert draw.largest(values, 0).tolist() == []


@pytest.mark.parametrize(
    "numbers",
    [
        [draw.uniform(draw.stream_key(7, 0), position) for position in range(20_000)],
        [draw.uniform(draw.stream_key(seed, 0), 0) for seed in range(20_000)],
        [draw.uniform(draw.stream_key(7, index), 3) for index in range(20_000)],
        [draw.uniform(draw.stream_key(-seed, 1), seed) for seed in range(20_000)],
    ],
    ids=["positions", "seeds", "indices", "mixed"],
)
def test_chance_is_uniform_and_neighbours_have_nothing_alike(numbers: list[float]) -> None:
    assert min(numbers) >= 0
    assert max(numbers) < 1
    cells, _, _ = np.histogram2d(numbers[:-1], numbers[1:], bins=10, range=[[0, 1], [0, 1]])
    expected = (len(numbers) - 1) / 100
    chi_square = float(((cells - expected) ** 2 / expected).sum())
    assert chi_square < 149  # 99 degrees of freedom: exceeded once in a thousand


def test_chance_is_splitmix64() -> None:
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423]  # of seed 1234567
    expected = [(value >> 11) * 2.0**-53 for value in published]
    assert [draw.uniform(1234567, position) for position in range(3)] == expected


def test_log_normaliser_is_the_log_of_the_sum() -> None:
    logits = np.array([1000.0, 999.0, -np.inf], np.float32)
    assert draw.log_normaliser(logits, 1000.0) == pytest.approx(1000 + np.log(1 + np.exp(-1)))
