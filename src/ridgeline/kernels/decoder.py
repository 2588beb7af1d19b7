"""The seam between the engine and whatever computes: a decoder's weights, a batch, logits.

The law of this file: it names what crosses the seam and computes nothing. `native` (C++) and
`portable` (torch) implement `Decoder`; tests hold them equal; `serving.engine.model` picks one.

One flat batch of T rows, S sequences; sequence s owns rows starts[s] .. starts[s] + lens[s], the
last of its `contexts[s]` cached positions:

    rows       | a | b b b b b b | c | d d d |
    starts     0   1             7   8           lens  1 6 1 3

Shapes: T rows, S sequences, W wanted rows, D hidden, N query heads, K key-value heads, H head
dimensions, F feed-forward, V words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

TOKENS = 16
"""Tokens of the smallest cache block; a block size is a multiple of it."""

Int32 = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float32]
Items = npt.NDArray[Any]
"""float32, uint16 holding bf16 bits, or int8 (which then has scales)."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder's sizes. `frequencies` [H/2]: the rotary angle per position, in radians."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    rms_eps: float
    frequencies: Floats


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer as its file has it: matrices [out, in] in any float type, norms, maybe a bias.

    `qkv` are the rows of q, then k, then v; `gate_up` those of gate, then up.
    """

    input_norm: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    out: torch.Tensor
    ffn_norm: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor


@dataclass(frozen=True, slots=True)
class Weights:
    """A whole decoder. Layers are taken one by one and not kept."""

    embedding: torch.Tensor
    layers: Sequence[LayerWeights]
    final_norm: torch.Tensor
    head: torch.Tensor


@dataclass(frozen=True, slots=True)
class Cache:
    """The paged keys and values of all layers, in blocks of sixteen tokens.

    A block of one layer and one key-value head:

        keys    [H / 2] [16 keys] [2]     bf16, int8: dimensions 2i and 2i+1 of a key are neighbours
                [H / 2] [2] [16 keys]     fp32
        values  [8 pairs] [H] [2]         bf16, int8: keys 2j and 2j+1 of a dimension are neighbours
                [8 pairs] [2] [H]         fp32

    so that a block is what matrix instructions (AVX512_BF16, AMX) want, in the order in which they
    want it. `keys` and `values` are [layers, blocks, K, ...]; int8 has a scale for each token and
    key-value head, [layers, blocks, K, 16] fp32: value = int8 * scale. `tables` name blocks of
    `blocks_per` sixteens.
    """

    keys: Items
    values: Items
    key_scales: Floats | None
    value_scales: Floats | None
    blocks_per: int


@dataclass(frozen=True, slots=True)
class Batch:
    """One step: the rows' tokens [T], whose they are [S], where their cache is, what is wanted.

    `tables` [S, blocks] number cache blocks; `wanted` [W] names the rows whose logits are wanted,
    in the order in which they are returned. `token_ids` are valid: the caller has checked them.
    """

    token_ids: Int32
    starts: Int32
    lens: Int32
    contexts: Int32
    tables: Int32
    wanted: Int32


class Decoder(Protocol):
    """A loaded decoder. Not safe for two threads at once: buffers are shared."""

    @property
    def name(self) -> str:
        """What computes on this machine, for humans."""

    def forward(self, batch: Batch, cache: Cache) -> Floats:
        """Logits of the wanted rows, [W, V]; every row's keys and values go to the cache.

        The array is overwritten by the next call.
        """
