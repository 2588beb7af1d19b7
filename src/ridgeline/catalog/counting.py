"""Counts a model's parameters from its architecture, matrix by matrix, to check its row.

`count` takes a row of the catalog (or what `hf_config` makes of a config.json) and gives whole
numbers by part. Kinds of attention, of experts and of whole models are functions in tables: a new
architecture is one more function. Nothing here is an estimate; what a row does not say is not
counted (`extra_params` are what its source counts besides, such as a vision tower).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Count:
    """Parameters by part; `idle` are those that one token does not multiply with."""

    parts: dict[str, int]
    idle: int

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.parts.values())

    @property
    def active(self) -> int:
        """Those that one token multiplies with: a table of vectors is only looked up."""
        return self.total - self.idle


def count(row: Row) -> Count:
    """All parameters of a model by part."""
    return _WHOLE[row.get("type", "decoder")](row)


# Models that generate text.


def _decoder(row: Row) -> Count:
    hidden, layers = row["hidden"], row["layers"]
    table = row["vocab"] * hidden
    moe = row.get("moe", {})
    dense_layers = layers - moe.get("layers", 0)
    parts = {
        "embeddings": table,
        "head": 0 if row.get("tied_embeddings") else table,
        "attention": _attention(row),
        "dense layers": dense_layers * _feed_forward(row),
        "routed experts": 0,
        "shared experts": 0,
        "routers": 0,
        "norms": (layers * row.get("norms_per_layer", 2) + 1) * hidden * _per_norm(row),
        "extra": row.get("extra_params", 0) + _vision(row.get("vision")) + _hyper(row),
    }
    idle = 0 if row.get("tied_embeddings") else table
    if moe:
        parts |= _experts(row, moe)
        unvisited = moe["experts"] - moe["top_k"]
        idle += moe["layers"] * unvisited * _expert(row, moe)
    return Count(parts, idle)


def _per_norm(row: Row) -> int:
    """A scale for each value, and where norms subtract the mean a bias too."""
    return 2 if row.get("norm") == "layer" else 1


def _feed_forward(row: Row) -> int:
    matrices = 3 if row.get("gated", True) else 2
    hidden, wide = row["hidden"], row["intermediate"]
    biases = (matrices - 1) * wide + hidden if row.get("mlp_bias") else 0
    return matrices * hidden * wide + biases


def _expert(row: Row, moe: Row) -> int:
    """One routed expert of one layer."""
    outer, wide = moe.get("latent_hidden", row["hidden"]), moe["expert_intermediate"]
    biases = 2 * wide + outer if moe.get("expert_bias") else 0
    return 3 * outer * wide + biases


def _experts(row: Row, moe: Row) -> dict[str, int]:
    hidden, layers, experts = row["hidden"], moe["layers"], moe["experts"]
    wide = moe.get("shared_intermediate", moe["expert_intermediate"])
    shared = moe.get("shared_experts", 0) * 3 * hidden * wide
    gate = hidden if moe.get("shared_gate") else 0
    narrow = moe.get("latent_hidden", 0)
    latent = 2 * hidden * narrow + narrow  # down, up, and a norm between
    router = experts * hidden + (experts if moe.get("router_bias") else 0)
    return {
        "routed experts": layers * experts * _expert(row, moe),
        "shared experts": layers * (shared + gate),
        "routers": layers * (router + latent),
    }


# Attention, by kind.


def _attention(row: Row) -> int:
    """All layers, each by its kind."""
    attention, layers = row["attention"], row["layers"]
    kind = attention.get("kind", "gqa")
    if kind == "csa_hca":
        return layers * _pooled(row, attention) + _compressors(row, attention)
    mix = attention.get("layer_mix", {kind: layers})
    return sum(n * _ATTENTION.get(one, _heads)(row, attention) for one, n in mix.items())


def _heads(row: Row, attention: Row) -> int:
    """Queries, keys, values and output of MHA, GQA and MQA, whatever they look back at."""
    hidden, width = row["hidden"], row["head_dim"]
    queries, keys = row["heads"] * width, row["kv_heads"] * width
    gate = queries if attention.get("output_gate") else 0
    weights = hidden * (2 * queries + gate + 2 * keys)
    biases = queries + 2 * keys if attention.get("qkv_bias") else 0
    biases += hidden if attention.get("o_bias") else 0
    norms = {"per_head": 2 * width, "full": queries + keys}.get(attention.get("qk_norm", ""), 0)
    sinks = row["heads"] if attention.get("sinks") else 0
    return weights + biases + norms + sinks


def _latent(row: Row, attention: Row) -> int:
    """Multi-head latent attention, with the indexer of sparse attention where there is one."""
    hidden, heads = row["hidden"], row["heads"]
    rope, nope = attention["qk_rope_dim"], attention["qk_nope_dim"]
    latent, wide = attention["kv_lora_rank"], attention["v_head_dim"]
    squeezed = attention.get("q_lora_rank")
    queries = heads * (nope + rope)
    into = hidden * squeezed + squeezed + squeezed * queries if squeezed else hidden * queries
    keys = hidden * (latent + rope) + latent + latent * heads * (nope + wide)
    gate = hidden * heads * wide if attention.get("output_gate") else 0
    return into + keys + gate + heads * wide * hidden + _indexer(hidden, attention)


def _indexer(hidden: int, attention: Row) -> int:
    found = attention.get("indexer")
    if not found:
        return 0
    heads, width = found["heads"], found["dim"]
    return attention["q_lora_rank"] * heads * width + hidden * width + 2 * width + hidden * heads


def _gated_delta(row: Row, attention: Row) -> int:
    """Gated delta net: one projection for q, k, v and z, one for the two gates, a convolution."""
    hidden, width = row["hidden"], attention["linear_value_dim"]
    keys = attention["linear_key_heads"] * attention["linear_key_dim"]
    heads = attention["linear_value_heads"]
    values = heads * width
    into = hidden * (2 * keys + 2 * values) + hidden * 2 * heads
    conv = (2 * keys + values) * attention["conv_kernel"]
    return into + conv + 2 * heads + width + values * hidden


def _kimi_delta(row: Row, attention: Row) -> int:
    """Kimi delta attention: q, k and v with convolutions, and gates of low or full rank."""
    hidden, heads = row["hidden"], attention["linear_heads"]
    width = attention["linear_head_dim"]
    wide = heads * width
    conv = 3 * wide * attention["conv_kernel"]
    low_rank = hidden * width + width * wide
    output_gate = hidden * wide if attention.get("full_rank_gate") else low_rank
    decay = low_rank + wide + heads
    return 3 * hidden * wide + conv + decay + hidden * heads + output_gate + width + wide * hidden


def _pooled(row: Row, attention: Row) -> int:
    """DeepSeek-V4: squeezed queries, one shared key-value vector, an output in groups."""
    hidden, heads, width = row["hidden"], row["heads"], row["head_dim"]
    squeezed, groups = attention["q_lora_rank"], attention["o_groups"]
    queries = hidden * squeezed + squeezed + squeezed * heads * width
    keys = hidden * width + width
    inner = groups * attention["o_lora_rank"]
    output = (heads * width // groups) * inner + inner * hidden
    return queries + keys + output + heads


def _compressors(row: Row, attention: Row) -> int:
    """What pools the cache, n to 1; layers of 4 to 1 also have an indexer with keys of its own."""
    hidden, width, found = row["hidden"], row["head_dim"], attention["indexer"]
    total = 0
    for ratio, layers in attention["compress_layers"].items():
        rate = int(ratio)
        if not rate:
            continue
        if rate > 4:
            total += layers * (2 * hidden * width + rate * width + width)
            continue
        own = 4 * hidden * width + rate * 2 * width + width
        small = found["dim"]
        keys = 4 * hidden * small + rate * 2 * small + small
        scores = hidden * found["heads"] + attention["q_lora_rank"] * found["heads"] * small
        total += layers * (own + keys + scores)
    return total


def _hyper(row: Row) -> int:
    """Hyper-connections of DeepSeek-V4: several residual streams, mixed before each block."""
    streams = row["attention"].get("hyper_mult", 0)
    if not streams:
        return 0
    wide = streams * row["hidden"]
    mixed = (2 + streams) * streams
    block = mixed * wide + mixed + 3
    return 2 * row["layers"] * block + streams * wide + streams + 1


_ATTENTION: dict[str, Callable[[Row, Row], int]] = {
    "mla": _latent,
    "gated_deltanet": _gated_delta,
    "kda": _kimi_delta,
}


# Vision towers, encoders, diffusion.


def _vision(tower: Row | None) -> int:
    """A vision transformer with biases, and the mergers that hand its patches to the model."""
    if not tower:
        return 0
    hidden, wide = tower["hidden"], tower["intermediate"]
    merged = tower["merge"] ** 2 * hidden
    patches = 3 * tower["temporal_patch"] * tower["patch"] ** 2 * hidden + hidden
    attention = 4 * hidden * hidden + 4 * hidden
    block = attention + 2 * hidden * wide + wide + hidden + 4 * hidden
    hand_over = merged * merged + merged + merged * tower["out"] + tower["out"]
    mergers = hand_over + 2 * hidden + tower["deepstack"] * (hand_over + 2 * merged)
    return patches + tower["positions"] * hidden + tower["layers"] * block + mergers


def _encoder(row: Row) -> Count:
    """BERT: biases everywhere, tables for positions and segments, a pooler."""
    hidden, wide, layers = row["hidden"], row["intermediate"], row["layers"]
    tables = (row["vocab"] + row["max_positions"] + 2) * hidden
    parts = {
        "embeddings": tables,
        "attention": layers * 4 * (hidden * hidden + hidden),
        "dense layers": layers * (2 * hidden * wide + wide + hidden),
        "norms": (2 * layers + 1) * 2 * hidden,
        "extra": hidden * hidden + hidden,
    }
    return Count(parts, 0)


def _video(row: Row) -> Count:
    """Wan's diffusion transformer: self- and cross-attention, modulation by the time step."""
    hidden, wide, layers = row["hidden"], row["intermediate"], row["layers"]
    attention = 4 * (hidden * hidden + hidden) + 2 * hidden  # with norms of queries and keys
    feed_forward = 2 * hidden * wide + wide + hidden
    cells = 1
    for side in row["patch"]:
        cells *= side
    patch = row["latent_channels"] * cells
    parts = {
        "embeddings": patch * hidden
        + hidden
        + row["text_dim"] * hidden
        + hidden
        + hidden * hidden
        + hidden
        + row["freq_dim"] * hidden
        + hidden
        + hidden * hidden
        + hidden
        + hidden * 6 * hidden
        + 6 * hidden,
        "attention": layers * 2 * attention,
        "dense layers": layers * feed_forward,
        "norms": layers * (2 * hidden + 6 * hidden),
        "head": hidden * patch + patch + 2 * hidden,
    }
    return Count(parts, 0)


_WHOLE: dict[str, Callable[[Row], Count]] = {
    "decoder": _decoder,
    "encoder": _encoder,
    "video-diffusion": _video,
}
