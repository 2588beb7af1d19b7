"""The compiled decoder equals the portable one at every level, and itself whatever the batch."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from decoder_parts import Driver, dirty_cache, parts, shuffled_tables
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import FAMILIES, VOCAB, tiny_transformer

from ridgeline.kernels.decoder import Batch, LayerWeights, Shape, Weights
from ridgeline.kernels.library import levels
from ridgeline.kernels.native_decoder import NativeDecoder
from ridgeline.kernels.portable import PortableDecoder

LEVELS = levels()
pytestmark = pytest.mark.skipif(not LEVELS, reason="needs a C++ compiler: no kernels were built")

TYPES = [
    ("fp32", "fp32"), ("bf16", "bf16"), ("bf16", "int8"), ("int8", "bf16"), ("int8", "int8"),
]  # fmt: skip
NEAR = {"fp32": 2e-5, "bf16": 0.004, "int8": 0.01}
"""Mean difference of rows, by the model's type: sums in another order turn some roundings the other
way, and later layers see that."""
LONG_NEAR = {"fp32": 2e-5, "bf16": 0.008, "int8": 0.03}
"""Beyond 128 keys: softmax weights are rounded beside the largest score so far, the portable ones
beside the largest of all."""
INT8_CACHE_NEAR = 0.01
MEDIAN_ROW_NEAR = 1e-5
"""Where no rounding turned, nothing but the order of sums is left."""
CUTS = ((20, 1, 1, 30), (1, 1, 1), (70,), (16, 16, 1), (5, 40, 19))


@cache
def model_of(family: str) -> tuple[Shape, Weights]:
    return parts(tiny_transformer(family))


def native(
    shape: Shape, weights: Weights, level: str, types: tuple[str, str], threads: int = 1
) -> NativeDecoder:
    return NativeDecoder(
        shape, weights, dtype=types[0], cache_dtype=types[1], level=level, threads=threads
    )


def run(
    decoder: Any, shape: Shape, chunks: Sequence[Sequence[Sequence[int]]], kind: str, *,
    blocks_per: int = 1, seed: int = 0,
) -> list[np.ndarray]:  # fmt: skip
    lengths = [sum(map(len, each)) for each in chunks]
    tables, blocks = shuffled_tables(lengths, blocks_per=blocks_per, seed=seed)
    cache = dirty_cache(shape, kind, blocks, blocks_per=blocks_per)
    return Driver(decoder, cache, tables).run(chunks)


def chunks_of(cuts: Sequence[Sequence[int]], vocab: int = VOCAB) -> list[list[list[int]]]:
    chance = np.random.default_rng(0)
    return [[chance.integers(0, vocab, n).tolist() for n in lengths] for lengths in cuts]


def differences(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Of each row: root of the mean square difference over that of the logits."""
    assert np.isfinite(got).all()
    return np.sqrt(np.square(got - expected).mean(1) / np.square(expected).mean(1))


def assert_near(got: np.ndarray, expected: np.ndarray, types: tuple[str, str]) -> None:
    rows = differences(got, expected)
    assert rows.mean() <= max(NEAR[types[0]], INT8_CACHE_NEAR if types[1] == "int8" else 0.0)
    assert np.median(rows) <= MEDIAN_ROW_NEAR


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("level", LEVELS)
def test_every_level_equals_the_portable_decoder(level, family, types):
    shape, weights = model_of(family)
    chunks = chunks_of(CUTS)
    expected = run(PortableDecoder(shape, weights, types[0]), shape, chunks, types[1])
    got = run(native(shape, weights, level, types), shape, chunks, types[1], blocks_per=2, seed=1)
    assert_near(np.concatenate(got), np.concatenate(expected), types)


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    head_dim, kv_heads = draw(st.sampled_from([16, 32, 48, 64, 80, 128])), draw(st.integers(1, 3))
    return Shape(
        layers=draw(st.integers(1, 2)),
        hidden=draw(st.sampled_from([16, 40, 64, 100, 192])),
        heads=kv_heads * draw(st.integers(1, 5)),
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=draw(st.sampled_from([8, 16, 50, 96, 200])),
        vocab=draw(st.integers(2, 150)),
        rms_eps=1e-5,
        frequencies=(1e4 ** -np.linspace(0, 1, head_dim // 2)).astype(np.float32),
    )


def random_weights(shape: Shape, *, norms: bool, bias: bool) -> Weights:
    chance = torch.Generator().manual_seed(shape.hidden + shape.vocab)

    def matrix(out: int, width: int) -> torch.Tensor:
        return torch.randn(out, width, generator=chance) / width**0.5

    def vector(width: int) -> torch.Tensor:
        return 1 + 0.1 * torch.randn(width, generator=chance)

    across = shape.heads * shape.head_dim
    outputs = across + 2 * shape.kv_heads * shape.head_dim
    layers = [
        LayerWeights(
            input_norm=vector(shape.hidden),
            qkv=matrix(outputs, shape.hidden),
            qkv_bias=vector(outputs) if bias else None,
            q_norm=vector(shape.head_dim) if norms else None,
            k_norm=vector(shape.head_dim) if norms else None,
            out=matrix(shape.hidden, across),
            ffn_norm=vector(shape.hidden),
            gate_up=matrix(2 * shape.ffn, shape.hidden),
            down=matrix(shape.hidden, shape.ffn),
        )
        for _ in range(shape.layers)
    ]
    embedding = torch.randn(shape.vocab, shape.hidden, generator=chance)
    return Weights(embedding, layers, vector(shape.hidden), matrix(shape.vocab, shape.hidden))


@settings(max_examples=60, deadline=None)
@given(
    shape=shapes(),
    types=st.sampled_from(TYPES),
    level=st.sampled_from(LEVELS or ["none"]),
    cuts=st.lists(st.lists(st.integers(1, 40), min_size=1, max_size=4), min_size=1, max_size=5),
    threads=st.integers(1, 3),
    blocks_per=st.integers(1, 3),
    norms=st.booleans(),
    bias=st.booleans(),
)
def test_any_shape_equals_the_portable_decoder(
    shape, types, level, cuts, threads, blocks_per, norms, bias
):
    weights, chunks = random_weights(shape, norms=norms, bias=bias), chunks_of(cuts, shape.vocab)
    expected = run(PortableDecoder(shape, weights, types[0]), shape, chunks, types[1])
    decoder = native(shape, weights, level, types, threads)
    got = run(decoder, shape, chunks, types[1], blocks_per=blocks_per)
    # A few hundred numbers: one rounding turned the other way weighs more than in a model.
    wrong = np.abs(np.concatenate(got) - np.concatenate(expected)).max()
    most = 1e-4 if types == ("fp32", "fp32") else 0.15
    assert wrong <= most * max(1.0, np.abs(np.concatenate(expected)).max())


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("level", LEVELS)
def test_a_row_is_the_same_bit_for_bit_in_any_batch_cut_and_number_of_threads(level, types):
    shape, weights = model_of("llama")
    chunks = chunks_of([*CUTS, (200, 150)])
    together = run(native(shape, weights, level, types, threads=3), shape, chunks, types[1])
    alone = native(shape, weights, level, types)
    for tokens, got in zip(chunks, together, strict=True):
        whole = [[token for chunk in tokens for token in chunk]]
        assert np.array_equal(run(alone, shape, [whole], types[1], seed=7)[0], got)


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("level", LEVELS)
def test_a_context_that_is_cut_for_several_threads_equals_the_portable_decoder(level, types):
    shape, weights = model_of("llama-tied")
    chunks = chunks_of([(1500, 1, 600, 1), (3,)])
    expected = run(PortableDecoder(shape, weights, types[0]), shape, chunks, types[1])
    got = run(native(shape, weights, level, types, threads=2), shape, chunks, types[1])
    rows = differences(got[0], expected[0])
    assert np.median(rows[:128]) <= MEDIAN_ROW_NEAR
    assert rows.mean() <= LONG_NEAR[types[0]]


def test_one_decoder_serves_one_cache_after_another():
    shape, weights = model_of("llama")
    chunks = chunks_of([(30,)])
    decoder = native(shape, weights, LEVELS[0], ("bf16", "bf16"))
    first, second = (run(decoder, shape, chunks, "bf16", blocks_per=n)[0] for n in (1, 2))
    assert np.array_equal(first, second)


def test_the_profile_names_every_stage_and_starts_again():
    shape, weights = model_of("llama")
    decoder = native(shape, weights, LEVELS[0], ("int8", "bf16"))
    run(decoder, shape, chunks_of([(30,)]), "bf16")
    taken = decoder.profile()
    assert all(seconds > 0 for seconds in taken.values())
    assert not any(decoder.profile().values())


def test_the_embedding_of_the_last_word_and_one_row_are_fine():
    shape, weights = model_of("llama")
    decoder = native(shape, weights, LEVELS[0], ("fp32", "fp32"))
    got = run(decoder, shape, [[[VOCAB - 1]]], "fp32")[0]
    expected = run(PortableDecoder(shape, weights, "fp32"), shape, [[[VOCAB - 1]]], "fp32")[0]
    assert_near(got, expected, ("fp32", "fp32"))


SMALL = Shape(
    layers=1, hidden=64, heads=2, kv_heads=1, head_dim=16, ffn=64, vocab=50, rms_eps=1e-5,
    frequencies=(1e4 ** -np.linspace(0, 1, 8)).astype(np.float32),
)  # fmt: skip


@pytest.mark.parametrize("level", LEVELS)
def test_gates_far_below_zero_are_closed(level):
    weights = random_weights(SMALL, norms=False, bias=False)
    gate_up = weights.layers[0].gate_up.clone()
    gate_up[:64] *= 100  # 2**y of -128 and less
    weights = replace(weights, layers=[replace(weights.layers[0], gate_up=gate_up)])
    chunks = chunks_of([(30,)], SMALL.vocab)
    expected = run(PortableDecoder(SMALL, weights, "fp32"), SMALL, chunks, "fp32")[0]
    got = run(native(SMALL, weights, level, ("fp32", "fp32")), SMALL, chunks, "fp32")[0]
    assert_near(got, expected, ("fp32", "fp32"))


@pytest.mark.parametrize("types", TYPES, ids="-".join)
@pytest.mark.parametrize("level", LEVELS)
def test_a_nan_is_not_lost(level, types):
    weights = random_weights(SMALL, norms=False, bias=False)
    embedding = weights.embedding.clone()
    embedding[7, 3] = np.nan
    decoder = native(SMALL, replace(weights, embedding=embedding), level, types)
    got = run(decoder, SMALL, [[[1, 2], [7, 3, 4]]], types[1])[0]
    assert np.isnan(got).any(1).tolist() == [False, False, True, True, True]


def batch_of(**changes: object) -> Batch:
    def array(*numbers: int) -> np.ndarray:
        return np.array(numbers, np.int32)

    good = Batch(array(1, 2, 3), array(0), array(3), array(3), array(0)[None], array(2))
    return replace(good, **{name: np.array(value, np.int32) for name, value in changes.items()})


@pytest.mark.parametrize(
    "changes",
    [
        {"wanted": [3]}, {"wanted": [-1]}, {"token_ids": [1, 2, 50]}, {"token_ids": [1, -2, 3]},
        {"starts": [1]}, {"starts": [-1]}, {"lens": [4]}, {"contexts": [2]}, {"contexts": [17]},
    ],
    ids=str,
)  # fmt: skip
def test_a_batch_that_contradicts_itself_is_refused(changes):
    weights = random_weights(SMALL, norms=False, bias=False)
    decoder = native(SMALL, weights, LEVELS[0], ("bf16", "bf16"))
    cache = dirty_cache(SMALL, "bf16", 1)
    with pytest.raises(ValueError, match="names rows"):
        decoder.forward(batch_of(**changes), cache)
    assert np.isfinite(decoder.forward(batch_of(), cache)).all()


def test_no_row_may_be_wanted_and_one_often():
    weights = random_weights(SMALL, norms=False, bias=False)
    decoder = native(SMALL, weights, LEVELS[0], ("int8", "int8"), threads=2)
    cache = dirty_cache(SMALL, "int8", 1)
    assert decoder.forward(batch_of(wanted=[]), cache).shape == (0, SMALL.vocab)
    often = decoder.forward(batch_of(wanted=[2] * 100), cache)
    assert len(np.unique(often, axis=0)) == 1


def test_a_forked_child_has_threads_of_its_own():
    weights = random_weights(SMALL, norms=False, bias=False)
    decoder, cache = (
        native(SMALL, weights, LEVELS[0], ("bf16", "bf16"), threads=3),
        dirty_cache(SMALL, "bf16", 1),
    )
    expected = decoder.forward(batch_of(), cache).copy()
    child = os.fork()
    if child == 0:
        same = np.array_equal(decoder.forward(batch_of(), cache), expected)
        decoder._close()
        os._exit(0 if same else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    ("changes", "types", "problem"),
    [
        ({"hidden": 80}, ("bf16", "bf16"), "weights of"),
        ({"head_dim": 24}, ("bf16", "bf16"), "multiples of 16"),
        ({}, ("fp32", "int8"), "a cache of int8"),
    ],
)
def test_what_cannot_be_run_is_refused(changes, types, problem):
    weights = random_weights(SMALL, norms=False, bias=False)
    with pytest.raises(ValueError, match=problem):
        native(replace(SMALL, **changes), weights, LEVELS[0], types)


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
