"""A decoder in plain torch: what every other one must equal, and what serves without a compiler.

The law of this file: the numerics are fixed here, clear first; the compiled decoder differs from
it only by the order of its sums and the last bits of its exp, sin and cos. `serving.engine.model`
picks it; tests compare with it.

    residual stream   fp32
    activations       rounded to bf16 in "bf16" and "int8" models, else fp32: each norm's result,
                      q, attention's result, silu(gate) * up
    products          sums, biases and results fp32; embedding and head are never int8
    int8 products     weights are quantised from the file's floats, for each output; the rounded
                      row as it is. Sums are exact; the result is sum * (row scale * output scale)
    int8              scale = absmax / 127, number = x * (1 / scale), rounded once, halves to even
    norms, rotation   fp32, of fp32 sums; the angle is position * frequency in fp32
    cache             keys and values go from fp32 to its type, int8 with a scale a token and head
    scores            fp32, dot(q, k) / sqrt(H), times the key's scale
    softmax           fp32; exp(score - max), times the value's scale, is rounded like an activation
                      for the product with values; the denominator sums what was not rounded

A row's logits are the same bit for bit whatever other sequences are in the batch, though not
however its own prompt is cut: products are blind to other rows (`portable_products`), attention
sees one sequence at a time, and silu, cos and sin are taken in fp64, since in fp32 a row's place
among others decides between vector and scalar code, which differ in the last bit.

Shapes: T rows, S keys of a sequence, W wanted rows, D hidden, N query heads, K key-value heads,
H head dimensions, F feed-forward, V words. A key-value head serves R = T * G queries: of each
position, the G = N / K query heads that share it.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from ridgeline.kernels import cache_layout
from ridgeline.kernels.decoder import TOKENS, Batch, Cache, Floats, LayerWeights, Shape, Weights
from ridgeline.kernels.portable_products import FloatProduct, Product, product_of

ACTIVATIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "int8": torch.bfloat16}
"""What activations are rounded to, by the model's type."""
_QUERY_ROWS = 64
"""Query positions whose scores are made at once: they are N * 64 * S floats."""


@dataclass(frozen=True, slots=True)
class _Layer:
    """One layer's products, and norms and bias as fp32."""

    input_norm: torch.Tensor
    qkv: Product
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    out: Product
    ffn_norm: torch.Tensor
    gate_up: Product
    down: Product

    @classmethod
    def of(cls, layer: LayerWeights, dtype: str) -> "_Layer":
        optional = (layer.qkv_bias, layer.q_norm, layer.k_norm)
        bias, q_norm, k_norm = (None if each is None else each.float() for each in optional)
        return cls(
            input_norm=layer.input_norm.float(),
            qkv=product_of(layer.qkv, dtype),
            qkv_bias=bias,
            q_norm=q_norm,
            k_norm=k_norm,
            out=product_of(layer.out, dtype),
            ffn_norm=layer.ffn_norm.float(),
            gate_up=product_of(layer.gate_up, dtype),
            down=product_of(layer.down, dtype),
        )


@dataclass(frozen=True, slots=True)
class _Sequence:
    """Where one sequence's new rows and all its cached keys are."""

    rows: slice
    context: int
    sixteens: cache_layout.Int64


@dataclass(frozen=True, slots=True)
class _Step:
    """What is the same in every layer of a step.

    `cos` and `sin` [T, H/2] rotate the rows; `block` and `slot` [T] are their places in the cache.
    """

    sequences: list[_Sequence]
    cos: torch.Tensor
    sin: torch.Tensor
    block: torch.Tensor
    slot: torch.Tensor

    @classmethod
    def of(cls, batch: Batch, blocks_per: int, frequencies: torch.Tensor) -> "_Step":
        position_T, block_T, slot_T = (np.empty(len(batch.token_ids), np.int64) for _ in range(3))
        sequences = []
        each = zip(batch.starts, batch.lens, batch.contexts, batch.tables, strict=True)
        for start, new, context, table in each:
            rows, positions = slice(start, start + new), np.arange(context - new, context)
            position_T[rows] = positions
            block_T[rows], slot_T[rows] = cache_layout.places(table, positions, blocks_per)
            sixteens = cache_layout.sixteens(table, context, blocks_per)
            sequences.append(_Sequence(rows, int(context), sixteens))
        angle_TH = torch.outer(torch.from_numpy(position_T).float(), frequencies).double()
        block, slot = torch.from_numpy(block_T), torch.from_numpy(slot_T)
        return cls(sequences, angle_TH.cos().float(), angle_TH.sin().float(), block, slot)


class PortableDecoder:
    """`decoder.Decoder` in torch, for models of type "fp32", "bf16" and "int8".

    Weights are kept in the model's type. The cache may have any type. ValueError: a type or a
    head dimension that cannot be run.
    """

    def __init__(self, shape: Shape, weights: Weights, dtype: str) -> None:
        if shape.head_dim % TOKENS:
            raise ValueError(f"head_dim: {shape.head_dim} is no multiple of {TOKENS}")
        if dtype not in ACTIVATIONS:
            raise ValueError(f'dtype: "{dtype}" is none of {", ".join(ACTIVATIONS)}')
        self._shape = shape
        self._activation = ACTIVATIONS[dtype]
        self._embedding_VD = weights.embedding.to(self._activation)
        tied = weights.head is weights.embedding
        self._head = FloatProduct(self._embedding_VD if tied else weights.head.to(self._activation))
        self._layers = [_Layer.of(layer, dtype) for layer in weights.layers]
        self._final_norm = weights.final_norm.float()
        self._frequencies = torch.tensor(shape.frequencies)

    @property
    def name(self) -> str:
        """What computes, for humans."""
        return "portable (torch)"

    @torch.inference_mode()
    def forward(self, batch: Batch, cache: Cache) -> Floats:
        """Logits of the wanted rows, [W, V] fp32; every row's keys and values go to the cache."""
        step = _Step.of(batch, cache.blocks_per, self._frequencies)
        x_TD = self._embedding_VD[torch.tensor(batch.token_ids)].float()
        for number, layer in enumerate(self._layers):
            h_TD = self._normed(x_TD, layer.input_norm)
            x_TD = x_TD + layer.out(self._attend(layer, number, h_TD, step, cache))
            h_TD = self._normed(x_TD, layer.ffn_norm)
            x_TD = x_TD + layer.down(self._rounded(silu_mul(layer.gate_up(h_TD))))
        wanted_WD = x_TD[torch.tensor(batch.wanted)]
        logits: Floats = self._head(self._normed(wanted_WD, self._final_norm)).numpy()
        return logits

    def _attend(
        self, layer: _Layer, number: int, h_TD: torch.Tensor, step: _Step, cache: Cache
    ) -> torch.Tensor:
        """The layer's attention of all rows, [T, N * H]; their keys and values are cached first."""
        q_TNH, k_TKH, v_TKH = self._qkv(layer, h_TD, step)
        cache_layout.store(cache, number, step.block, step.slot, k_TKH, v_TKH)
        attended_TNH = torch.empty_like(q_TNH)
        for each in step.sequences:
            k, k_scales = cache_layout.key_numbers(cache, number, each.sixteens, each.context)
            v, v_scales = cache_layout.value_numbers(cache, number, each.sixteens, each.context)
            attended_TNH[each.rows] = attention(
                q_TNH[each.rows], k, v,
                key_scales_SK=k_scales, value_scales_SK=v_scales, weights_dtype=self._activation,
            )  # fmt: skip
        return self._rounded(attended_TNH.flatten(1))

    def _qkv(
        self, layer: _Layer, h_TD: torch.Tensor, step: _Step
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Normed and rotated: q, rounded like an activation, and k and v in fp32."""
        shape = self._shape
        qkv = layer.qkv(h_TD)
        if layer.qkv_bias is not None:
            qkv = qkv + layer.qkv_bias
        heads = qkv.view(len(qkv), -1, shape.head_dim)
        q, k, v = torch.split(heads, [shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
        q = q if layer.q_norm is None else rms_norm(q, layer.q_norm, shape.rms_eps)
        k = k if layer.k_norm is None else rms_norm(k, layer.k_norm, shape.rms_eps)
        q, k = (rope(x, step.cos, step.sin) for x in (q, k))
        return self._rounded(q), k, v

    def _normed(self, x_TD: torch.Tensor, weight_D: torch.Tensor) -> torch.Tensor:
        return self._rounded(rms_norm(x_TD, weight_D, self._shape.rms_eps))

    def _rounded(self, x: torch.Tensor) -> torch.Tensor:
        """An activation: fp32 that holds what the activations' type can hold."""
        return x.to(self._activation).float()


def attention(
    q_TNH: torch.Tensor,
    k_SKH: torch.Tensor,
    v_SKH: torch.Tensor,
    *,
    key_scales_SK: torch.Tensor | None = None,
    value_scales_SK: torch.Tensor | None = None,
    weights_dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """Causal attention of a sequence's last T positions over its S keys, [T, N, H] in fp32.

    Query head n reads key head n // (N // K). Keys and values may be int8 numbers whose scales
    come beside them. Softmax weights are rounded to `weights_dtype` for the product with values.
    """
    before = len(k_SKH) - len(q_TNH)
    pieces = []
    for first in range(0, len(q_TNH), _QUERY_ROWS):
        some_TNH = q_TNH[first : first + _QUERY_ROWS]
        seen = before + first + len(some_TNH)
        scores_KRS = _scores(some_TNH, k_SKH[:seen], key_scales_SK)
        weights_KRS = (scores_KRS - scores_KRS.amax(-1, keepdim=True)).exp()
        denominator_KR1 = weights_KRS.sum(-1, keepdim=True)
        if value_scales_SK is not None:
            weights_KRS = weights_KRS * value_scales_SK[:seen].T[:, None]
        weights_KRS = weights_KRS.to(weights_dtype).float()
        attended_KRH = weights_KRS @ v_SKH[:seen].float().transpose(0, 1) / denominator_KR1
        pieces.append(_by_position(attended_KRH, len(some_TNH)))
    return torch.cat(pieces)


def _scores(
    q_TNH: torch.Tensor, k_SKH: torch.Tensor, key_scales_SK: torch.Tensor | None
) -> torch.Tensor:
    """Scores [K, R, S] of the last T of S positions; minus infinity where a key comes later."""
    rows, heads, dims = q_TNH.shape
    keys, key_heads, _ = k_SKH.shape
    group = heads // key_heads
    q_TKGH = q_TNH.float().reshape(rows, key_heads, group, dims)
    q_KRH = q_TKGH.transpose(0, 1).reshape(key_heads, rows * group, dims)
    scores_KRS = q_KRH @ k_SKH.float().permute(1, 2, 0) / math.sqrt(dims)
    if key_scales_SK is not None:
        scores_KRS = scores_KRS * key_scales_SK[:keys].T[:, None]
    position_R1 = torch.arange(keys - rows, keys).repeat_interleave(group)[:, None]
    return scores_KRS.masked_fill(torch.arange(keys) > position_R1, float("-inf"))


def _by_position(x_KRH: torch.Tensor, rows: int) -> torch.Tensor:
    """From [K, R, H] to [T, N, H]: the R rows of a key head are its queries of each position."""
    key_heads, _, dims = x_KRH.shape
    x_KTGH = x_KRH.reshape(key_heads, rows, -1, dims)
    return x_KTGH.transpose(0, 1).reshape(rows, -1, dims)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """RMSNorm, x / rms(x) * weight, over the last dimension, in fp32 (Zhang and Sennrich 2019)."""
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.float()


def rope(x_TNH: torch.Tensor, cos_TH: torch.Tensor, sin_TH: torch.Tensor) -> torch.Tensor:
    """Rotate the two halves of each head; `cos_TH` and `sin_TH` cover half the dimensions."""
    a, b = x_TNH.float().chunk(2, dim=-1)
    cos, sin = cos_TH[:, None], sin_TH[:, None]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1)


def silu_mul(gate_up: torch.Tensor) -> torch.Tensor:
    """SwiGLU, silu(gate) * up, where the last dimension holds gate, then up."""
    gate, up = gate_up.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate.double()).float() * up.float()
