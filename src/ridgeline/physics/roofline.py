"""The roofline: what memory and arithmetic allow, and which of the two binds.

Source of the model: Williams, Waterman and Patterson 2009.
"""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, choose, floor, largest, smallest


@law
def ridge_flop_per_byte(peak_flop_per_s: Number, memory_bytes_per_s: Number) -> Number:
    """Intensity above which arithmetic binds.

    Source: roofline model, Williams et al. 2009.
    """
    return peak_flop_per_s / memory_bytes_per_s


@law
def read_s(read_bytes: Number, bytes_per_s: Number) -> Number:
    """Time to move so many bytes once.

    Source: bytes over bandwidth.
    """
    return read_bytes / bytes_per_s


@law
def compute_s(work_flop: Number, peak_flop_per_s: Number, mfu: Number = 1.0) -> Number:
    """Time of so much arithmetic at a share of the peak (model FLOP utilisation).

    Source: PaLM, 2022 (MFU).
    """
    return work_flop / (peak_flop_per_s * mfu)


@law
def roofline_s(memory_time_s: Number, compute_time_s: Number) -> Number:
    """Time of a pass in which reads and arithmetic overlap: the longer of the two.

    Source: roofline model, Williams et al. 2009.
    """
    return largest(memory=memory_time_s, compute=compute_time_s)


# Intensity: what decides the bound, before any time is known.


@law
def intensity_flop_per_byte(work_flop: Number, moved_bytes: Number) -> Number:
    """Arithmetic for each byte that moves.

    Source: roofline model, Williams et al. 2009.
    """
    return work_flop / moved_bytes


@law
def weights_intensity_flop_per_byte(
    pass_tokens: Number, value_bytes: Number, flop_per_token: Number = 2.0
) -> Number:
    """Intensity of a pass over the weights alone: each is read once and used for every token.

    Two FLOP a weight and token over the bytes of a weight, so in 16 bits it is the token count.

    Source: Kaplan et al. 2020 (2N a token) over one read of N values.
    """
    return flop_per_token * pass_tokens / value_bytes


@law
def attention_intensity_flop_per_byte(
    heads: Number,
    kv_heads: Number,
    value_bytes: Number,
    value_flop: Number = 2.0,
) -> Number:
    """Intensity of reading the cache in decode: the query heads that share a cached value use it.

    It holds for every batch and context: each sequence reads its own cache.

    Source: 2 FLOP for each query head over the bytes of the value; Ainslie et al. 2023 (GQA).
    """
    return value_flop * heads / (kv_heads * value_bytes)


@law
def attainable_flop_per_s(
    work_flop_per_byte: Number, peak_flop_per_s: Number, memory_bytes_per_s: Number
) -> Number:
    """The roof over an intensity: bandwidth times intensity, up to the peak.

    Source: roofline model, Williams et al. 2009.
    """
    return smallest(memory=work_flop_per_byte * memory_bytes_per_s, compute=peak_flop_per_s)


@law
def ridge_tokens(
    peak_flop_per_s: Number,
    memory_bytes_per_s: Number,
    value_bytes: Number,
    flop_per_token: Number = 2.0,
) -> Number:
    """Tokens in a pass at which its weights take as long to read as to multiply.

    In decode each sequence has one token in a step, so this is a batch.

    Source: roofline model, Williams et al. 2009.
    """
    return peak_flop_per_s / memory_bytes_per_s * value_bytes / flop_per_token


@law
def ridge_context_tokens(
    linear_flop: Number,
    turning_flop_per_byte: Number,
    cached_bytes_per_token: Number,
    attention_flop_per_token: Number,
) -> Number:
    """Context up to which a large enough batch can reach the ridge; unlimited where any can.

    For an endless batch a step's intensity is (2N + a s) / (c s) with a the attention FLOPs and c
    the cache of a token of context: equal to the ridge at s = 2N / (ridge c - a).

    Source: roofline model with the cache, batch to infinity.
    """
    read = turning_flop_per_byte * cached_bytes_per_token
    return _or_never(linear_flop, read - attention_flop_per_token, read)


# What a batch does to a decode step.


@law
def knee_batch(
    weights_read_s: Number, sequence_compute_s: Number, sequence_read_s: Number
) -> Number:
    """Batch at which a decode step's arithmetic catches up with its reads; unlimited if never.

    W + B c = B f gives B = W / (f - c): with c, the read of one sequence's cache, above f, the
    arithmetic of one token, reads stay ahead however large the batch.

    Source: roofline model with the cache.
    """
    gap_s = sequence_compute_s - sequence_read_s
    return _or_never(weights_read_s, gap_s, sequence_compute_s)


@law
def even_batch(weights_bytes: Number, sequence_bytes: Number) -> Number:
    """Batch whose caches are as many bytes as the weights.

    While memory binds, throughput B / (W + B c) has there reached half of all it can.

    Source: B c = W.
    """
    return weights_bytes / sequence_bytes


@law
def fitting_batch(
    limit_s: Number, once_s: Number, sequence_s: Number, least_batch: Number = 0.0
) -> Number:
    """The largest batch whose step stays within a time, of which a part is spent once.

    Source: (limit - once) / each, and none where the part spent once is too long.
    """
    return largest(fits=floor((limit_s - once_s) / sequence_s), none=least_batch)


#: A gap that is a rounding error of what it is the difference of is none.
_ROUNDING = 1e-12


def _or_never(amount: Number, gap: Number, scale: Number) -> Number:
    """`amount / gap`, and unlimited where there is no gap; `scale` is of the size of its terms."""
    reached = amount / largest(gap=gap, none=_ROUNDING * scale)
    return choose(gap > 0, reached, reached * float("inf"), why="the gap closes")
