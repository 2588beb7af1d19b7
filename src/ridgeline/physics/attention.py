"""What attention costs in FLOPs, by its kind; the weights' own products are counted in `size`.

A pair is one query that looks at one key. Each costs a multiply and an add for every value of the
key, and the same again for the value. `head_dim` is the mean of both widths where they differ.
"""

from ridgeline.physics.law import law
from ridgeline.physics.size import window_tokens
from ridgeline.quantity import Number


@law
def attention_flop_per_token(
    layers: Number,
    heads: Number,
    head_dim: Number,
    context_tokens: Number,
    flop_per_token_token: Number = 4.0,
) -> Number:
    """Attention of one new token that looks back at the whole context (one step of decoding).

    Source: PaLM appendix B, 2022: QK and PV, 2 FLOP a value each.
    """
    return flop_per_token_token * layers * heads * head_dim * context_tokens


@law
def window_attention_flop(
    layers: Number,
    heads: Number,
    head_dim: Number,
    prompt_tokens: Number,
    sliding_window_tokens: Number,
    flop_per_token_token: Number = 4.0,
) -> Number:
    """Attention over a prompt whose tokens look back at most a window: w (s - w/2) pairs.

    A prompt shorter than the window is causal attention. Sparse attention that picks the best k
    tokens has as many pairs as a window of k.

    Source: Mistral 7B, 2023; sum of min(t, w) over the prompt.
    """
    seen = window_tokens(prompt_tokens, sliding_window_tokens)
    return flop_per_token_token * layers * heads * head_dim * seen * (prompt_tokens - seen / 2)


@law
def chunked_attention_flop(
    layers: Number,
    heads: Number,
    head_dim: Number,
    prompt_tokens: Number,
    chunk_tokens: Number,
    flop_per_token_token: Number = 2.0,
) -> Number:
    """Attention over a prompt in chunks that do not see each other: causal within each.

    Source: Llama 4, 2025 (chunked attention); the last chunk is taken as a full one.
    """
    seen = window_tokens(prompt_tokens, chunk_tokens)
    return flop_per_token_token * layers * heads * head_dim * prompt_tokens * seen


@law
def linear_flop_per_token(
    layers: Number,
    heads: Number,
    key_dim: Number,
    value_dim: Number,
    flop_per_state_token: Number = 6.0,
) -> Number:
    """Linear attention of one token in its recurrent form, whatever the context.

    Each token multiplies the state three times: by its key, by its update, by its query.

    Source: Yang et al. 2024 (Gated Delta Networks); the chunked form does somewhat more.
    """
    return flop_per_state_token * layers * heads * key_dim * value_dim


@law
def index_flop_per_token(
    layers: Number,
    index_heads: Number,
    index_dim: Number,
    context_tokens: Number,
    compression: Number,
    flop_per_token_token: Number = 2.0,
) -> Number:
    """The indexer of sparse attention scores the whole context, so prompts stay quadratic.

    Source: DeepSeek-V3.2, 2025 (lightning indexer): QK only, 2 FLOP a value.
    """
    seen = context_tokens / compression
    return flop_per_token_token * layers * index_heads * index_dim * seen
