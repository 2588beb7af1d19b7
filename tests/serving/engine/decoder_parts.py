"""What the tests of decoders share: a transformers model taken apart, a dirty cache, its driver."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ridgeline.kernels.decoder import TOKENS, Batch, Cache, Decoder, LayerWeights, Shape, Weights

ITEMS = {"fp32": np.float32, "bf16": np.uint16, "int8": np.int8}
NAN_ITEMS = {"fp32": np.nan, "bf16": 0x7FC0, "int8": 127}  # int8's scales are NaN instead


def parts(model: Any) -> tuple[Shape, Weights]:
    """A transformers model as the seam wants it."""
    config, weights = model.config, model.state_dict()
    frequencies = model.model.rotary_emb.inv_freq.numpy()
    shape = Shape(
        config.num_hidden_layers, config.hidden_size, config.num_attention_heads,
        config.num_key_value_heads, 2 * len(frequencies), config.intermediate_size,
        config.vocab_size, config.rms_norm_eps, frequencies,
    )  # fmt: skip
    layers = [_layer(weights, f"model.layers.{i}.") for i in range(shape.layers)]
    head, embedding = weights["lm_head.weight"], weights["model.embed_tokens.weight"]
    return shape, Weights(embedding, layers, weights["model.norm.weight"], head)


def _layer(weights: Mapping[str, torch.Tensor], prefix: str) -> LayerWeights:
    def rows(*names: str, kind: str = "weight") -> torch.Tensor | None:
        some = [weights.get(f"{prefix}{name}.{kind}") for name in names]
        there = [each for each in some if each is not None]
        return torch.cat(there) if there else None

    qkv = [f"self_attn.{letter}_proj" for letter in "qkv"]
    return LayerWeights(
        input_norm=rows("input_layernorm"),
        qkv=rows(*qkv),
        qkv_bias=rows(*qkv, kind="bias"),
        q_norm=rows("self_attn.q_norm"),
        k_norm=rows("self_attn.k_norm"),
        out=rows("self_attn.o_proj"),
        ffn_norm=rows("post_attention_layernorm"),
        gate_up=rows("mlp.gate_proj", "mlp.up_proj"),
        down=rows("mlp.down_proj"),
    )


def dirty_cache(shape: Shape, dtype: str, blocks: int, *, blocks_per: int = 1) -> Cache:
    """A cache of `blocks` blocks in which whatever is read before it is written is NaN."""
    lead = (shape.layers, blocks * blocks_per, shape.kv_heads)
    keys, values = (shape.head_dim // 2, TOKENS, 2), (TOKENS // 2, shape.head_dim, 2)
    if dtype == "fp32":
        keys, values = (shape.head_dim // 2, 2, TOKENS), (TOKENS // 2, 2, shape.head_dim)
    key_items, value_items = (
        np.full(lead + block, NAN_ITEMS[dtype], ITEMS[dtype]) for block in (keys, values)
    )
    scales = [np.full((*lead, TOKENS), np.nan, np.float32) for _ in range(2)]
    return Cache(key_items, value_items, *(scales if dtype == "int8" else (None, None)), blocks_per)


def shuffled_tables(
    lengths: Sequence[int], *, blocks_per: int = 1, seed: int = 0
) -> tuple[np.ndarray, int]:
    """Tables for sequences of these lengths, in no order, and how many blocks there are."""
    sizes = [-(-length // (TOKENS * blocks_per)) for length in lengths]
    order = np.random.default_rng(seed).permutation(sum(sizes)).astype(np.int32)
    tables = np.full((len(sizes), max(sizes)), -1, np.int32)
    for table, size, first in zip(tables, sizes, itertools.accumulate([0, *sizes]), strict=False):
        table[:size] = order[first : first + size]
    return tables, sum(sizes)


class Driver:
    """Feeds a decoder new tokens of numbered sequences, and knows how long each one is."""

    def __init__(self, decoder: Decoder, cache: Cache, tables: np.ndarray) -> None:
        self.decoder, self.cache, self.tables = decoder, cache, tables
        self.contexts = np.zeros(len(tables), np.int32)

    def step(self, new: Mapping[int, Sequence[int]]) -> dict[int, np.ndarray]:
        """One batch; each sequence's logits of all its new rows."""
        which = list(new)
        lens = np.array([len(tokens) for tokens in new.values()], np.int32)
        self.contexts[which] += lens
        ids = np.fromiter(itertools.chain(*new.values()), np.int32)
        ends = np.cumsum(lens, dtype=np.int32)
        batch = Batch(
            ids, ends - lens, lens, self.contexts[which], self.tables[which],
            wanted=np.arange(len(ids), dtype=np.int32),
        )  # fmt: skip
        logits = self.decoder.forward(batch, self.cache).copy()
        return dict(zip(which, np.split(logits, ends[:-1]), strict=True))

    def run(self, chunks: Sequence[Sequence[Sequence[int]]]) -> list[np.ndarray]:
        """Feed chunk after chunk, those of all sequences together; each sequence's logits."""
        pieces: list[list[np.ndarray]] = [[] for _ in chunks]
        for step in itertools.zip_longest(*chunks):
            new = {i: tokens for i, tokens in enumerate(step) if tokens is not None}
            for i, logits in self.step(new).items():
                pieces[i].append(logits)
        return [np.concatenate(each) for each in pieces]
