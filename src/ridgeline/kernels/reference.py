"""What the fast kernels must equal: the same numerics in plain torch, one sequence at a time.

Tests compare `kernels.cpu` with it. Clarity alone counts here; nothing serves from it.
"""

import torch
from torch.nn import functional


def attention(
    q_TNH: torch.Tensor, k_SKH: torch.Tensor, v_SKH: torch.Tensor, scale: float
) -> torch.Tensor:
    """Causal attention of a sequence's last T positions over its S keys, with K key heads.

    Query head n reads key head n // (N // K). Returns [T, N, H] in fp32.
    """
    rows, heads, _ = q_TNH.shape
    keys, key_heads, _ = k_SKH.shape
    k = k_SKH.float().repeat_interleave(heads // key_heads, dim=1)
    v = v_SKH.float().repeat_interleave(heads // key_heads, dim=1)
    scores = torch.einsum("tnh,snh->nts", q_TNH.float(), k) * scale
    position = torch.arange(keys - rows, keys)[:, None]
    hidden = torch.arange(keys)[None] > position
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return torch.einsum("nts,snh->tnh", weights, v)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMSNorm, x / rms(x) * weight, over the last dimension, in fp32."""
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.float()


def rope(x_TNH: torch.Tensor, cos_TH: torch.Tensor, sin_TH: torch.Tensor) -> torch.Tensor:
    """Rotate the two halves of each head; `cos_TH` and `sin_TH` cover half the dimensions."""
    a, b = x_TNH.float().chunk(2, dim=-1)
    cos, sin = cos_TH[:, None], sin_TH[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """SwiGLU, silu(gate) * up, where the last dimension holds gate, then up."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return functional.silu(gate) * up
