"""Logits equal transformers' on the same weights, however prompts are cut, batched and cached."""

import math
from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from decoder_parts import Driver, dirty_cache, parts, shuffled_tables
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import FAMILIES, VOCAB, tiny_transformer

from ridgeline.kernels import portable
from ridgeline.kernels.decoder import Batch, Shape, Weights
from ridgeline.kernels.portable import PortableDecoder, attention, rms_norm, rope, silu_mul
from ridgeline.kernels.portable_products import FloatProduct, Int8Product

FP32_TOLERANCE = 5e-5
"""Absolute, on logits of up to 5: sums in another order."""
WRONG = {
    ("fp32", "bf16"): 0.01, ("fp32", "int8"): 0.02, ("bf16", "bf16"): 0.02,
    ("bf16", "int8"): 0.03, ("int8", "bf16"): 0.04, ("int8", "int8"): 0.05,
}  # fmt: skip
"""By model's and cache's type: root of the mean square difference over that of the logits."""
TYPES = [("fp32", "fp32"), *WRONG]
CUTS = ((20, 1, 1, 30), (1, 1, 1), (70,), (16, 16, 1), (5, 40, 19))
"""Five sequences' chunks."""

Chunks = list[list[list[int]]]


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Tiny products gain nothing from threads, and on a busy machine they wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@cache
def model_of(family: str) -> Any:
    return tiny_transformer(family)


@cache
def decoder_of(family: str, dtype: str) -> tuple[Shape, PortableDecoder]:
    shape, weights = parts(model_of(family))
    return shape, PortableDecoder(shape, weights, dtype)


def chunks_of(cuts: Sequence[Sequence[int]], seed: int = 0) -> Chunks:
    chance = np.random.default_rng(seed)
    return [[chance.integers(0, VOCAB, n).tolist() for n in lengths] for lengths in cuts]


def driver(
    shape: Shape, decoder: PortableDecoder, chunks: Chunks, kind: str, *, blocks_per: int = 1
) -> Driver:
    lengths = [sum(map(len, each)) for each in chunks]
    tables, blocks = shuffled_tables(lengths, blocks_per=blocks_per)
    return Driver(decoder, dirty_cache(shape, kind, blocks, blocks_per=blocks_per), tables)


def expected_logits(model: Any, chunks: Sequence[Sequence[int]]) -> np.ndarray:
    with torch.inference_mode():
        return model(torch.tensor([list(chain(*chunks))])).logits[0].numpy()


@pytest.mark.parametrize("blocks_per", [1, 3])
@pytest.mark.parametrize("family", FAMILIES)
def test_fp32_logits_equal_transformers(family, blocks_per):
    chunks = chunks_of(CUTS)
    logits = driver(*decoder_of(family, "fp32"), chunks, "fp32", blocks_per=blocks_per).run(chunks)
    for got, each in zip(logits, chunks, strict=True):
        assert np.abs(got - expected_logits(model_of(family), each)).max() <= FP32_TOLERANCE


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(["llama", "qwen3"]),
    st.sampled_from([(1, 1), (9, 3), (14, 2), (4, 4), (6, 1)]),
    st.sampled_from([16, 48, 80]),
    st.tuples(st.integers(8, 20), st.integers(1, 90), st.integers(1, 3)),
    st.lists(st.lists(st.integers(1, 90), min_size=1, max_size=3), min_size=1, max_size=3),
    st.integers(1, 3),
)
def test_fp32_logits_equal_transformers_for_any_sizes(
    family, heads, head_dim, sizes, cuts, blocks_per
):
    options = {
        "num_attention_heads": heads[0], "num_key_value_heads": heads[1], "head_dim": head_dim,
        "hidden_size": sizes[0] * heads[0], "intermediate_size": sizes[1],
        "num_hidden_layers": sizes[2],
    }  # fmt: skip
    model = tiny_transformer(family, options=options)
    (shape, weights), chunks = parts(model), chunks_of(cuts)
    decoder = PortableDecoder(shape, weights, "fp32")
    for got, each in zip(
        driver(shape, decoder, chunks, "fp32", blocks_per=blocks_per).run(chunks), chunks,
        strict=True,
    ):  # fmt: skip
        expected = expected_logits(model, each)
        assert np.abs(got - expected).max() <= 2e-5 * max(1, np.abs(expected).max())


@pytest.mark.parametrize(("dtype", "kind"), WRONG)
@pytest.mark.parametrize("family", ["llama", "qwen2", "qwen3"])
def test_fewer_bits_stay_near_transformers_fp32(family, dtype, kind):
    chunks = chunks_of(CUTS)
    got = np.concatenate(driver(*decoder_of(family, dtype), chunks, kind).run(chunks))
    expected = np.concatenate([expected_logits(model_of(family), each) for each in chunks])
    assert np.linalg.norm(got - expected) / np.linalg.norm(expected) <= WRONG[dtype, kind]


@pytest.mark.parametrize(("dtype", "kind"), TYPES)
def test_a_batch_equals_one_at_a_time_bit_for_bit(dtype, kind):
    chunks = chunks_of(CUTS)
    together = driver(*decoder_of("qwen3", dtype), chunks, kind).run(chunks)
    for i, each in enumerate(chunks):
        alone = driver(*decoder_of("qwen3", dtype), [each], kind).run([each])
        np.testing.assert_array_equal(alone[0], together[i])


@pytest.mark.parametrize(("dtype", "kind"), TYPES)
def test_what_unused_slots_hold_never_reaches_a_logit(dtype, kind):
    chunks = chunks_of(CUTS)
    dirty, clean = (driver(*decoder_of("llama", dtype), chunks, kind) for _ in range(2))
    for items in (clean.cache.keys, clean.cache.values):
        items[:] = 0
    for got, expected in zip(dirty.run(chunks), clean.run(chunks), strict=True):
        assert np.isfinite(got).all()
        np.testing.assert_array_equal(got, expected)


def test_a_shared_prefix_is_read_where_it_lies():
    shape, decoder = decoder_of("llama", "bf16")
    prefix, one, other = chunks_of([(32, 9, 9)])[0]
    tables = np.array([[3, 0, 1], [3, 0, 2]], np.int32)
    shared = Driver(decoder, dirty_cache(shape, "bf16", 4), tables)
    shared.step({0: prefix})
    shared.contexts[1] = len(prefix)
    got = shared.step({0: one, 1: other})[1]
    own = driver(shape, decoder, [[prefix, other]], "bf16").run([[prefix, other]])[0]
    np.testing.assert_array_equal(got, own[len(prefix) :])


def test_only_wanted_rows_are_returned_in_their_order_and_the_cache_is_filled_anyway():
    shape, decoder = decoder_of("llama", "fp32")
    tokens = chunks_of([(20,)])[0][0]
    every = driver(shape, decoder, [[tokens]], "fp32").run([[tokens]])[0]
    for wanted in ([], [19, 3]):
        kept = dirty_cache(shape, "fp32", 2)
        batch = Batch(*(
            np.array(each, np.int32)
            for each in (tokens, [0], [20], [20], [[1, 0]], wanted)
        ))  # fmt: skip
        np.testing.assert_array_equal(decoder.forward(batch, kept), every[wanted])
        assert np.isfinite(kept.keys).sum() == 20 * shape.layers * shape.kv_heads * shape.head_dim


def test_a_head_or_type_that_cannot_be_run_is_refused():
    nothing = torch.empty(0)
    weights = Weights(nothing, [], nothing, nothing)
    for head_dim, dtype, problem in ((24, "fp32", "head_dim: 24"), (16, "fp16", "dtype: .fp16")):
        shape = Shape(1, 48, 2, 2, head_dim, 8, 8, 1e-5, np.ones(head_dim // 2, np.float32))
        with pytest.raises(ValueError, match=problem):
            PortableDecoder(shape, weights, dtype)


def test_layers_are_taken_one_by_one_and_a_tied_embedding_is_kept_once():
    shape, weights = parts(model_of("llama-tied"))
    decoder = PortableDecoder(
        shape, Weights(weights.embedding, weights.layers, weights.final_norm, weights.embedding),
        "bf16",
    )  # fmt: skip
    chunks = chunks_of([(3,)])
    got = driver(shape, decoder, chunks, "bf16").run(chunks)
    np.testing.assert_array_equal(
        got, driver(*decoder_of("llama-tied", "bf16"), chunks, "bf16").run(chunks)
    )


@pytest.mark.parametrize("dtype", ["bf16", "int8"])
def test_every_activation_is_rounded(dtype, monkeypatch):
    seen = []

    def watched(function: Any) -> Any:
        def call(x: torch.Tensor, *rest: Any, **options: Any) -> torch.Tensor:
            seen.append(torch.equal(x, x.bfloat16().float()))
            return function(x, *rest, **options)

        return call

    for product in (FloatProduct, Int8Product):
        inner = product.__call__
        monkeypatch.setattr(
            product, "__call__", lambda self, x, inner=inner: watched(partial(inner, self))(x)
        )
    monkeypatch.setattr(portable, "attention", watched(attention))
    shape, weights = parts(model_of("qwen3"))
    chunks = chunks_of([(9,)])
    driver(shape, PortableDecoder(shape, weights, dtype), chunks, "bf16").run(chunks)
    assert seen == [True] * (5 * shape.layers + 1), "qkv, q, out, gate_up, down; the head"


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (1, 90), (7, 30), (200, 200), (64, 150)])
def test_attention_equals_torchs(rows, keys):
    q, k, v = draw(rows, 6, 16), draw(keys, 2, 16, seed=1), draw(keys, 2, 16, seed=2)
    seen = torch.arange(keys) <= torch.arange(keys - rows, keys)[:, None]
    expected = torch.nn.functional.scaled_dot_product_attention(
        q.transpose(0, 1), *(x.repeat_interleave(3, 1).transpose(0, 1) for x in (k, v)), seen
    ).transpose(0, 1)
    assert (attention(q, k, v) - expected).abs().max() <= 2e-6


def test_attention_of_scaled_numbers_is_that_of_the_numbers_times_their_scales():
    q, k, v = draw(5, 4, 16), draw(70, 2, 16, seed=1), draw(70, 2, 16, seed=2)
    scales = [draw(70, 2, seed=seed).abs() for seed in (3, 4)]
    got = attention(q, k, v, key_scales_SK=scales[0], value_scales_SK=scales[1])
    expected = attention(q, k * scales[0][..., None], v * scales[1][..., None])
    assert (got - expected).abs().max() <= 5e-6


def test_softmax_weights_are_rounded_for_the_values_and_not_for_the_denominator():
    q, k = torch.zeros(1, 1, 16), torch.zeros(2, 1, 16)
    q[0, 0, 0], k[1, 0, 0] = 4.0, -1.0  # scores 0 and -1
    v = torch.tensor([0.0, 1.0])[:, None, None].expand(2, 1, 16)
    weight = torch.tensor(math.exp(-1.0))
    got = attention(q, k, v, weights_dtype=torch.bfloat16)
    assert got[0, 0, 0] == weight.bfloat16().float() / (1 + weight)
    # A value's scale is part of what is rounded.
    scaled = attention(
        q, k, v, weights_dtype=torch.bfloat16, value_scales_SK=torch.full((2, 1), 0.3)
    )
    assert scaled[0, 0, 0] == (0.3 * weight).bfloat16().float() / (1 + weight)


def test_huge_scores_neither_overflow_nor_vanish():
    q, k, v = 1e4 * draw(3, 2, 16), 1e4 * draw(40, 2, 16, seed=1), draw(40, 2, 16, seed=2)
    got = attention(q, k, v)
    assert got.isfinite().all()
    assert got.abs().amax() > 0


def test_small_functions_are_what_their_names_say():
    x, weight = draw(3, 2, 16), draw(16, seed=1)
    expected = torch.nn.functional.rms_norm(x, (16,), weight, 1e-5)
    assert (rms_norm(x, weight, 1e-5) - expected).abs().max() <= 1e-6
    angle = draw(3, 8, seed=2)
    turned = torch.complex(x[..., :8], x[..., 8:]) * torch.polar(torch.ones(3, 8), angle)[:, None]
    got = rope(x, angle.cos(), angle.sin())
    assert (got - torch.cat([turned.real, turned.imag], -1)).abs().max() <= 1e-6
    gate, up = x.chunk(2, -1)
    assert (silu_mul(x) - gate * gate.sigmoid() * up).abs().max() <= 1e-6


def test_silu_does_not_depend_on_where_threads_share_the_rows():
    x = draw(43, 3100)
    torch.set_num_threads(3)
    try:
        together = silu_mul(x)
    finally:
        torch.set_num_threads(1)
    assert torch.equal(together, torch.cat([silu_mul(row) for row in x.split(1)]))
