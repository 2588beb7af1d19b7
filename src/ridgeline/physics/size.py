"""Bytes of weights and caches, and what a token costs in FLOPs, from a model's architecture.

Counts (layers, heads, values) are pure numbers; `*_bytes` of one value turn them into bytes.
"""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, ceil, largest, smallest


@law
def weight_bytes(params: Number, value_bytes: Number) -> Number:
    """Bytes of the weights, each parameter in the same type.

    Source: a parameter is one value.
    """
    return params * value_bytes


@law
def kv_bytes_per_token(
    layers: Number,
    kv_heads: Number,
    head_dim: Number,
    value_bytes: Number,
    vectors_per_token: Number = 2.0,
) -> Number:
    """Cache of one token with a key and a value for each KV head (MHA, GQA, MQA).

    Source: Shazeer 2019 (MQA), Ainslie et al. 2023 (GQA).
    """
    return vectors_per_token * layers * kv_heads * head_dim * value_bytes


@law
def latent_bytes_per_token(
    layers: Number,
    latent_dim: Number,
    rope_dim: Number,
    value_bytes: Number,
    vectors_per_token: Number = 1.0,
) -> Number:
    """Cache of one token with latent attention (MLA): one vector a layer, shared by all heads.

    Source: DeepSeek-V2, 2024.
    """
    return vectors_per_token * layers * (latent_dim + rope_dim) * value_bytes


@law
def kv_heads_per_rank(kv_heads: Number, tensor_parallel: Number) -> Number:
    """KV heads that each rank keeps: past one a rank they are replicated, never split.

    Source: Megatron-LM, vLLM.
    """
    return largest(split=ceil(kv_heads / tensor_parallel), replicated=1)


@law
def window_tokens(context_tokens: Number, sliding_window_tokens: Number) -> Number:
    """Tokens that a sliding-window layer keeps: the context, capped at its window.

    Source: Mistral 7B, 2023.
    """
    return smallest(context=context_tokens, window=sliding_window_tokens)


@law
def forward_flop_per_token(params: Number, flop_per_param_token: Number = 2.0) -> Number:
    """FLOPs of the matrix products of one token: a multiply and an add for each weight.

    Source: Kaplan et al. 2020, 2N a token; attention scores are counted apart.
    """
    return flop_per_param_token * params


@law
def training_flop(params: Number, tokens: Number, flop_per_param_token: Number = 6.0) -> Number:
    """FLOPs of training: forward 2N a token, backward twice as much.

    Source: Kaplan et al. 2020, 6N a token.
    """
    return flop_per_param_token * params * tokens


@law
def causal_attention_flop(
    layers: Number,
    heads: Number,
    head_dim: Number,
    prompt_tokens: Number,
    flop_per_token_token: Number = 2.0,
) -> Number:
    """Scores and their weighted sum over a causal prompt: each token sees half of it on average.

    Two products (QK and PV) of 2 FLOP a value, over s^2/2 pairs: 2 s^2 h d a layer.

    Source: PaLM appendix B, 2022, with the causal half.
    """
    return flop_per_token_token * prompt_tokens * prompt_tokens * heads * head_dim * layers


@law
def distinct_experts(experts: Number, top_k: Number, batch: Number) -> Number:
    """Experts that at least one token of a batch visits, with even routing: E (1 - (1 - k/E)^B).

    Source: expected size of a union of independent draws.
    """
    return experts * (1 - (1 - top_k / experts) ** batch)
