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


# Cache of one rank, of bounded kinds, and of recurrent kinds.


@law
def kv_bytes_per_token_per_rank(
    layers: Number,
    kv_heads: Number,
    head_dim: Number,
    value_bytes: Number,
    tensor_parallel: Number,
    pipeline_parallel: Number = 1.0,
    vectors_per_token: Number = 2.0,
) -> Number:
    """Cache of one token on one rank: layers split over stages, heads over the tensor group.

    Source: Megatron-LM, vLLM; heads are replicated where there are more ranks than heads.
    """
    heads = kv_heads_per_rank(kv_heads, tensor_parallel)
    return vectors_per_token * ceil(layers / pipeline_parallel) * heads * head_dim * value_bytes


@law
def window_bytes_per_token(
    layers: Number,
    kv_heads: Number,
    head_dim: Number,
    value_bytes: Number,
    vectors_per_token: Number = 2.0,
) -> Number:
    """Cache of one token in the layers whose cache is capped, while it is within their window.

    Source: as `kv_bytes_per_token`.
    """
    return vectors_per_token * layers * kv_heads * head_dim * value_bytes


@law
def window_cache_bytes(
    cached_bytes_per_token: Number, context_tokens: Number, sliding_window_tokens: Number
) -> Number:
    """Cache of the layers that look back at most a window (or a chunk): capped, never dropped.

    Source: Mistral 7B, 2023 (rolling buffer).
    """
    return cached_bytes_per_token * window_tokens(context_tokens, sliding_window_tokens)


@law
def linear_state_bytes(
    layers: Number, heads: Number, key_dim: Number, value_dim: Number, value_bytes: Number
) -> Number:
    """State of linear attention (gated delta net, KDA): a matrix a head, whatever the context.

    Source: Yang et al. 2024 (Gated Delta Networks).
    """
    return layers * heads * key_dim * value_dim * value_bytes


@law
def conv_state_bytes(
    layers: Number, channels: Number, conv_kernel: Number, value_bytes: Number
) -> Number:
    """Inputs that a short causal convolution keeps: all but one of its taps.

    Source: Mamba, 2023; Gated Delta Networks, 2024.
    """
    return layers * channels * (conv_kernel - 1) * value_bytes


@law
def compressed_bytes_per_token(
    layers: Number,
    head_dim: Number,
    compression: Number,
    value_bytes: Number,
    vectors_per_token: Number = 1.0,
) -> Number:
    """Cache of one token where several are pooled into one vector that all heads share.

    Source: DeepSeek-V4, 2026 (compressed sparse and heavily compressed attention).
    """
    return vectors_per_token * layers * head_dim / compression * value_bytes


@law
def index_bytes_per_token(
    layers: Number,
    index_dim: Number,
    compression: Number,
    value_bytes: Number,
    vectors_per_token: Number = 1.0,
) -> Number:
    """Keys of the indexer that picks which tokens sparse attention reads: all are stored.

    Source: DeepSeek-V3.2, 2025 (lightning indexer).
    """
    return vectors_per_token * layers * index_dim / compression * value_bytes


@law
def gated_expert_params(hidden: Number, intermediate: Number, matrices: Number = 3.0) -> Number:
    """Weights of one gated feed-forward block: gate, up and down; biases apart.

    Source: Shazeer 2020 (SwiGLU).
    """
    return matrices * hidden * intermediate
