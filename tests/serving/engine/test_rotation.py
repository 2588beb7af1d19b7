"""A rotated decoder is the same decoder in exact arithmetic, and a better one in int8."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.kernels.decoder import Batch, LayerWeights, Shape, Weights
from ridgeline.kernels.portable import PortableDecoder
from ridgeline.serving.engine.architecture import Architecture
from ridgeline.serving.engine.cache import Arena
from ridgeline.serving.engine.rotation import Rotation, evened, rotated, rotated_layer

SAME = 2e-4
"""Of the largest logit: fp32 sums in another order."""


def random_model(hidden: int, ffn: int, layers: int, seed: int, *, bias: bool, outlier: float):
    """A decoder whose norms make two channels `outlier` times larger than the others."""
    chance = torch.Generator().manual_seed(seed)
    heads, kv_heads, head_dim = 2, 1, 16

    def normal(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=chance) / size[-1] ** 0.5

    def norm() -> torch.Tensor:
        weight = 0.5 + torch.rand(hidden, generator=chance)
        weight[torch.randperm(hidden, generator=chance)[:2]] *= outlier
        return weight

    def layer() -> LayerWeights:
        q_and_kv = (heads + 2 * kv_heads) * head_dim
        return LayerWeights(
            norm(), normal(q_and_kv, hidden), normal(q_and_kv) if bias else None, None, None,
            normal(hidden, heads * head_dim), norm(), normal(2 * ffn, hidden), normal(hidden, ffn),
        )  # fmt: skip

    embedding = normal(50, hidden) * hidden**0.5
    frequencies = (0.1 ** np.linspace(0, 3, head_dim // 2)).astype(np.float32)
    shape = Shape(layers, hidden, heads, kv_heads, head_dim, ffn, 50, 1e-5, frequencies)
    return shape, Weights(embedding, [layer() for _ in range(layers)], norm(), embedding)


def turned(weights: Weights) -> Weights:
    rotation = Rotation(weights.embedding.shape[1])
    layers = [rotated_layer(layer, rotation) for layer in weights.layers]
    return replace(rotated(weights, rotation), layers=layers)


def logits(shape: Shape, weights: Weights, dtype: str) -> torch.Tensor:
    """Of every row of one sequence."""
    a = Architecture("llama", shape.layers, shape.hidden, shape.heads, shape.kv_heads,
                     shape.head_dim, shape.ffn, shape.vocab, 64, 1e4, 1e-5)  # fmt: skip
    ids = np.arange(24, dtype=np.int32) * 7 % 50
    one = [np.array([n], np.int32) for n in (0, 24, 24)]
    batch = Batch(ids, *one, np.array([[1, 0]], np.int32), np.arange(24, dtype=np.int32))
    cache = Arena.of_blocks(a, "fp32" if dtype == "fp32" else "bf16", 2, 16).cache
    return torch.tensor(PortableDecoder(shape, weights, dtype).forward(batch, cache))


def error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@given(st.integers(1, 300))
def test_a_rotation_is_orthogonal_whatever_the_width(width):
    turn = Rotation(width).table(torch.eye(width))
    assert torch.allclose(turn @ turn.T, torch.eye(width), atol=1e-5)


@pytest.mark.parametrize("width", [64, 576, 896, 2048])
def test_a_rotation_spreads_one_channel_over_all(width):
    turn = Rotation(width).table(torch.eye(width))
    assert turn.abs().max() <= 3.0 / width**0.5


@settings(max_examples=25, deadline=None)
@given(
    st.integers(2, 60), st.integers(1, 70), st.integers(1, 2), st.integers(0, 999), st.booleans()
)
def test_a_rotated_decoder_says_the_same_in_fp32(hidden, ffn, layers, seed, bias):
    shape, weights = random_model(hidden, ffn, layers, seed, bias=bias, outlier=3.0)
    expected = logits(shape, weights, "fp32")
    found = logits(shape, turned(weights), "fp32")
    assert (found - expected).abs().max() <= SAME * expected.abs().max()


@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 999))
def test_evening_out_changes_no_product(ffn, hidden, seed):
    chance = torch.Generator().manual_seed(seed)
    gate_up, down = (
        torch.randn(size, generator=chance, dtype=torch.float64)
        for size in ((2 * ffn, hidden), (hidden, ffn))
    )
    gate_up[ffn] = 0.0  # nobody writes this channel
    down[:, -1] = 0.0  # nobody reads this one
    x = torch.randn((5, hidden), generator=chance, dtype=torch.float64)

    def mlp(gate_up: torch.Tensor, down: torch.Tensor) -> torch.Tensor:
        gate, up = (x @ gate_up.T).chunk(2, dim=-1)
        return (torch.nn.functional.silu(gate) * up) @ down.T

    assert torch.allclose(mlp(*evened(gate_up, down)), mlp(gate_up, down), rtol=1e-9, atol=1e-9)


def test_what_was_uneven_is_shared_by_the_row_and_the_matrix():
    gate_up, down = torch.ones(8, 4), torch.ones(3, 4)
    gate_up[4] = 100.0  # the first channel of up
    more, less = evened(gate_up, down)
    assert (more.chunk(2)[1].norm(dim=1).max() / more.chunk(2)[1].norm(dim=1).min()) < 11.0
    assert less.amax() / less.amin() < 11.0


@pytest.mark.parametrize("seed", range(3))
def test_int8_is_much_nearer_to_fp32_where_channels_stick_out(seed):
    shape, weights = random_model(128, 192, 2, seed, bias=True, outlier=40.0)
    expected = logits(shape, weights, "fp32")
    plain = error(logits(shape, weights, "int8"), expected)
    better = error(logits(shape, turned(weights), "int8"), expected)
    assert better < 0.6 * plain


def test_tables_keep_their_type():
    _, weights = random_model(32, 16, 1, 0, bias=False, outlier=1.0)
    narrow = replace(weights, embedding=weights.embedding.bfloat16(), head=weights.head.bfloat16())
    assert turned(narrow).embedding.dtype == turned(narrow).head.dtype == torch.bfloat16
