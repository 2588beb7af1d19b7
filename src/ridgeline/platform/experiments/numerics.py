"""Experiments on numbers themselves: rounding, sampling, padding."""

import random

import numpy as np

from ridgeline.platform.experiments import experiment


@experiment("one-pass-variance", cost=lambda values, **_: 20 * values)
def one_pass_variance(
    values: int = 4096, mean: float = 10_000.0, seed: int = 3
) -> tuple[float, float]:
    """Relative error of the fp32 variance as E[x^2] - E[x]^2, and of the two-pass form.

    Values of unit variance around a mean far from zero are summed in order, as one lane of a
    kernel does it. The error of the one-pass form is rounding, so it differs from draw to draw.
    """
    chance, single = random.Random(seed), np.float32
    row = np.array([chance.gauss(mean, 1.0) for _ in range(values)]).astype(single)
    count, true = single(values), float(row.astype(np.float64).var())

    def average(numbers: np.ndarray) -> np.float32:
        total: np.float32 = np.cumsum(numbers, dtype=single)[-1]
        return total / count

    middle = average(row)
    one_pass = average(row * row) - middle * middle
    two_pass = average((row - middle) ** 2)
    return abs(float(one_pass) - true) / true, abs(float(two_pass) - true) / true


@experiment("speculative-gap", cost=lambda pairs, vocabulary, **_: 10 * pairs * vocabulary)
def speculative_gap(pairs: int = 200, vocabulary: int = 16, seed: int = 3) -> float:
    """Largest gap between the target and what accept-and-resample emits, over random pairs.

    A drafted token is kept with min(1, p/q), else one is drawn from max(0, p - q): what comes out
    is summed exactly over the vocabulary, so what is left is the rounding of doubles.
    """
    chance, worst = np.random.default_rng(seed), 0.0
    for _ in range(pairs):
        target, draft = chance.dirichlet(np.ones(vocabulary), size=2)
        accepted = draft * np.minimum(1.0, target / draft)
        rest = np.maximum(0.0, target - draft)
        emitted = accepted + (1 - accepted.sum()) * rest / rest.sum()
        worst = max(worst, float(np.abs(emitted - target).max()))
    return worst


@experiment(
    "tile-padding",
    cost=lambda tokens, top_k, experts, draws, **_: (8 * tokens * top_k + experts) * draws,
)
def tile_padding(
    tokens: int = 4096,
    top_k: int = 8,
    experts: int = 256,
    tile: int = 128,
    skew: float = 1.0,
    draws: int = 1,
    seed: int = 7,
) -> float:
    """Share of a grouped GEMM's rows that are padding, where each expert fills whole tiles.

    Each token visits `top_k` distinct experts, drawn by Zipf's law with this skew; 0 is uniform.
    """
    chance, padded, used = random.Random(seed), 0, 0
    reach = np.cumsum(1 / np.arange(1, experts + 1) ** skew).tolist()
    for _ in range(draws):
        rows = [0] * experts
        for _ in range(tokens):
            visited: set[int] = set()
            while len(visited) < min(top_k, experts):
                visited.update(chance.choices(range(experts), cum_weights=reach))
            for expert in visited:
                rows[expert] += 1
        padded += sum(-(-count // tile) * tile for count in rows)
        used += sum(rows)
    return 1 - used / padded
