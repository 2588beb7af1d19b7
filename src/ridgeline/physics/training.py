"""What training keeps in memory, computes and reads: state, activations, recomputation, adapters.

Activation bytes count 16-bit values and one-byte dropout masks, as the papers do. `whole` parts
are kept by every tensor-parallel rank, `split` parts are shared out.
"""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, choose


@law
def training_state_bytes(params: Number, state_bytes: Number = 16.0) -> Number:
    """Weights, gradients and Adam in mixed precision: 2 + 2 + 4 + 4 + 4 bytes a parameter.

    Source: ZeRO, Rajbhandari et al. 2020, section 3.1.
    """
    return params * state_bytes


@law
def sharded_state_bytes(
    params: Number,
    weight_bytes_per_param: Number,
    gradient_bytes_per_param: Number,
    optimizer_bytes_per_param: Number,
    weight_shards: Number,
    gradient_shards: Number,
    optimizer_shards: Number,
) -> Number:
    """State that one rank keeps of its parameters, each part split over so many replicas.

    Source: ZeRO, Rajbhandari et al. 2020: stage 1 splits the optimizer, 2 gradients, 3 weights.
    """
    return params * (
        weight_bytes_per_param / weight_shards
        + gradient_bytes_per_param / gradient_shards
        + optimizer_bytes_per_param / optimizer_shards
    )


@law
def gelu_activation_bytes_per_token(
    hidden: Number,
    tensor_parallel: Number,
    sequence_parallel: Number,
    whole_bytes_per_token: Number = 10.0,
    split_bytes_per_token: Number = 24.0,
) -> Number:
    """Activations a layer keeps of a token, scores apart: the 34 h of a GELU block of width 4 h.

    Two norms, the inputs of both blocks and two dropout masks (10 h) are whole on every
    tensor-parallel rank unless the sequence is split too; queries, keys, values, the attention's
    result and the feed-forward block (24 h) are split.

    Source: Korthikanti et al. 2022 (arXiv 2205.05198), table 2.
    """
    whole = whole_bytes_per_token / sequence_parallel
    return hidden * (whole + split_bytes_per_token / tensor_parallel)


@law
def swiglu_activation_bytes_per_token(
    hidden: Number,
    intermediate: Number,
    query_values: Number,
    key_values: Number,
    tensor_parallel: Number,
    sequence_parallel: Number,
    block_vectors_per_token: Number = 4.0,
    query_vectors_per_token: Number = 2.0,
    key_vectors_per_token: Number = 2.0,
    gate_vectors_per_token: Number = 3.0,
    value_bytes: Number = 2.0,
) -> Number:
    """Activations a layer keeps of a token in a SwiGLU block with grouped queries, no dropout.

    Whole: the inputs of two norms and of both blocks (4 h). Split: queries and the attention's
    result (2), keys and values (2), gate, up and their product (3; 4 where the gate's activation
    is kept as well). `query_values` is heads x head width, `key_values` that of one rank's KV
    heads times the ranks.

    Source: the count of Korthikanti et al. 2022, done for Shazeer's 2020 block.
    """
    whole = block_vectors_per_token * hidden / sequence_parallel
    attention = query_vectors_per_token * query_values + key_vectors_per_token * key_values
    split = (attention + gate_vectors_per_token * intermediate) / tensor_parallel
    return (whole + split) * value_bytes


@law
def score_bytes(
    heads: Number,
    sequence_tokens: Number,
    sequences: Number,
    tensor_parallel: Number,
    bytes_per_token_token: Number = 5.0,
) -> Number:
    """Attention scores that a layer keeps without FlashAttention: 5 bytes a head and pair.

    Source: Korthikanti et al. 2022: softmax in and out, and a dropout mask.
    """
    pairs = sequence_tokens * sequence_tokens * sequences
    return bytes_per_token_token * heads * pairs / tensor_parallel


@law
def logit_bytes(
    rank_tokens: Number, vocab: Number, tensor_parallel: Number, bytes_per_token: Number = 6.0
) -> Number:
    """Logits of a micro-batch: 32 bits a token of the vocabulary, and a 16-bit gradient.

    Source: Megatron-LM's vocabulary-parallel loss.
    """
    return rank_tokens * vocab * bytes_per_token / tensor_parallel


@law
def rows_share(rows_tokens: Number, half_tokens: Number = 55.0) -> Number:
    """Share of its best rate that a matrix product of few rows reaches: m / (m + m_half).

    Source: GEMM times measured on H100 (n = k = 8192): 669 TFLOP/s at 256 rows, 707 to 838 from
    1,024 rows on.
    """
    return rows_tokens / (rows_tokens + half_tokens)


@law
def recomputed_share(forward_passes: Number, training_passes: Number = 3.0) -> Number:
    """Extra arithmetic of computing activations again, as a share of a step without it.

    Source: a step is one forward and a backward of twice its work.
    """
    return forward_passes / training_passes


@law
def in_flight(pipeline: Number, micro_batches: Number, chunks: Number) -> Number:
    """Micro-batches whose activations the first stage keeps under the 1F1B schedule.

    p of them, and (p-1)/v more where each stage holds v chunks; never more than there are.

    Source: Narayanan et al. 2021 (arXiv 2104.04473); Korthikanti et al. 2022, section 4.2.3.
    """
    extra = (pipeline - 1) / chunks
    scheduled = pipeline + choose(chunks > 1, extra, 0.0 * extra, why="interleaved")
    return choose(scheduled < micro_batches, scheduled, micro_batches, why="the schedule's depth")


@law
def bubble_of_ideal(pipeline: Number, micro_batches: Number, chunks: Number = 1.0) -> Number:
    """Idle time of a pipeline stage over its busy time: (p-1)/(v m).

    Source: Narayanan et al. 2021 (arXiv 2104.04473), section 2.2.
    """
    return (pipeline - 1) / (chunks * micro_batches)


@law
def bubble_of_total(pipeline: Number, micro_batches: Number, chunks: Number = 1.0) -> Number:
    """Idle time of a pipeline stage as a share of the step: (p-1)/(v m + p - 1).

    Source: Narayanan et al. 2021; GPipe, Huang et al. 2019.
    """
    return (pipeline - 1) / (chunks * micro_batches + pipeline - 1)


@law
def training_tokens_per_s(
    chips: Number, peak_flop_per_s: Number, mfu: Number, training_flop_per_token: Number
) -> Number:
    """Tokens a cluster trains on each second at a share of its peak.

    Source: PaLM, 2022 (MFU).
    """
    return chips * peak_flop_per_s * mfu / training_flop_per_token


@law
def training_flop_per_token(params: Number, flop_per_param_token: Number = 6.0) -> Number:
    """FLOPs of one trained token: forward 2N, backward 4N; of N only what the token visits.

    Source: Kaplan et al. 2020, 6N a token; attention scores are counted apart.
    """
    return flop_per_param_token * params


@law
def reached_mfu(
    model_flop: Number, elapsed_s: Number, chips: Number, peak_flop_per_s: Number
) -> Number:
    """Model FLOP utilisation: what the model needed over what the chips could have done.

    Source: PaLM, 2022.
    """
    return model_flop / (elapsed_s * chips * peak_flop_per_s)


@law
def hiding_tokens(
    gathered_bytes_per_param: Number,
    flop_per_param_token: Number,
    peak_flop_per_s: Number,
    mfu: Number,
    link_bytes_per_s: Number,
) -> Number:
    """Tokens a GPU needs at once so that arithmetic hides the gathering of sharded weights.

    Bytes over the link against FLOPs over the rate; the number of parameters cancels.

    Source: ZeRO-3 and FSDP; the JAX scaling book derives the same bound.
    """
    gather_s_per_param = gathered_bytes_per_param / link_bytes_per_s
    return gather_s_per_param * peak_flop_per_s * mfu / flop_per_param_token


@law
def scale_bytes(params: Number, block_params: Number, scale_value_bytes: Number = 4.0) -> Number:
    """One scale for each block of quantized weights.

    Source: QLoRA, Dettmers et al. 2023: 32 bits for 64 weights are half a bit each.
    """
    return params / block_params * scale_value_bytes


@law
def double_scale_bytes(
    params: Number,
    block_params: Number,
    super_block: Number,
    first_value_bytes: Number = 1.0,
    second_value_bytes: Number = 4.0,
) -> Number:
    """Scales that are quantized themselves: a byte a block, and one float for many blocks.

    Source: QLoRA, Dettmers et al. 2023, section 3: 0.127 bits a weight instead of 0.5.
    """
    blocks = params / block_params
    return blocks * (first_value_bytes + second_value_bytes / super_block)
