"""Packed products equal plain ones."""

import pytest
import torch

from ridgeline.serving.engine import linear
from ridgeline.serving.engine.linear import Linear

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2.0 / 256}


@pytest.mark.parametrize("packs", [True, False], ids=["packed", "plain"])
@pytest.mark.parametrize("dtype", list(TOLERANCE), ids=["fp32", "bf16"])
@pytest.mark.parametrize("biased", [True, False], ids=["bias", "no bias"])
def test_a_product_equals_the_plain_one_in_fp32(monkeypatch, packs, dtype, biased):
    if packs and not linear.can_pack(dtype):
        pytest.skip("oneDNN does not pack this type on this machine")
    monkeypatch.setattr(linear, "can_pack", lambda kind: packs)
    torch.manual_seed(0)
    weight, bias = torch.randn(48, 80), torch.randn(48) if biased else None
    product = Linear(weight, bias, dtype)
    assert product.kernel == ("oneDNN, packed" if packs else "F.linear")
    for rows in (1, 3, 40):
        x = torch.randn(rows, 80).to(dtype)
        expected = x.float() @ weight.to(dtype).float().T
        if bias is not None:
            expected += bias.to(dtype).float()
        got = product.multiply(x)
        assert got.dtype == dtype
        bound = TOLERANCE[dtype] * expected.abs().max()
        assert (got.float() - expected).abs().max() <= bound
        assert got.is_contiguous()


def test_without_onednn_nothing_is_packed(monkeypatch):
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    assert not linear.can_pack(torch.float32)
    assert not linear.can_pack(torch.bfloat16)
