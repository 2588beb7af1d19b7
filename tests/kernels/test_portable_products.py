"""Products are exact where they say so, and a row's result does not know its neighbours."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ridgeline.kernels.cache_layout import quantised
from ridgeline.kernels.portable_products import Int8Product, product_of

sizes = st.tuples(st.integers(1, 20), st.integers(1, 2500), st.integers(1, 1100))


def draw(rows: int, columns: int, seed: int) -> torch.Tensor:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=20, deadline=None)
@given(sizes, st.sampled_from(["fp32", "bf16"]))
def test_float_products_equal_exact_ones_of_the_rounded_weights(size, dtype):
    rows, inputs, outputs = size
    x, weight = draw(rows, inputs, 1).bfloat16().float(), draw(outputs, inputs, 2)
    kept = weight if dtype == "fp32" else weight.bfloat16()
    got, expected = product_of(weight, dtype)(x), x.double() @ kept.double().T
    assert got.shape == (rows, outputs)
    assert (got - expected).abs().max() <= 1e-6 * inputs


@settings(max_examples=20, deadline=None)
@given(sizes)
def test_int8_sums_are_exact(size):
    rows, inputs, outputs = size
    x, weight = draw(rows, inputs, 1), draw(outputs, inputs, 2)
    numbers, scales = zip(quantised(x), quantised(weight), strict=True)
    sums = numbers[0].long() @ numbers[1].long().T
    assert torch.equal(product_of(weight, "int8")(x), sums.float() * torch.outer(*scales))


def test_the_largest_int8_sums_are_exact():
    inputs = 3001
    got = Int8Product(torch.ones(1, inputs))(torch.full((1, inputs), -1.0))
    assert got.item() == pytest.approx(-inputs, rel=1e-6)
    # Far beyond 2 ** 24, where fp32 has no odd numbers, and back again.
    up = torch.randint(100, 128, (4096,), generator=torch.Generator().manual_seed(0))
    numbers = torch.cat([torch.tensor([127]), up, -up.flip(0)])
    got = Int8Product(numbers[None].float().expand(8, -1))(torch.full((8, len(numbers)), 127.0))
    assert (got == 127 * numbers.sum()).all()


def test_a_row_of_zeros_gives_zeros_and_no_row_gives_no_result():
    for dtype in ("fp32", "bf16", "int8"):
        multiply = product_of(draw(30, 40, 0), dtype)
        assert torch.equal(multiply(torch.zeros(2, 40)), torch.zeros(2, 30))
        assert multiply(torch.zeros(0, 40)).shape == (0, 30)


@settings(max_examples=20, deadline=None)
@given(
    st.sampled_from(["fp32", "bf16", "int8"]),
    st.lists(st.integers(0, 40), min_size=1, max_size=40),
    st.sampled_from([(64, 96), (576, 960), (1536, 1100)]),
)
def test_a_row_is_the_same_bit_for_bit_in_any_company(dtype, company, size):
    inputs, outputs = size
    x, multiply = draw(41, inputs, 3), product_of(draw(outputs, inputs, 4), dtype)
    assert torch.equal(multiply(x[company]), multiply(x)[company])
