"""Memory of a device: what engines take of it, and what is left for the cache.

Engines mean different things by their memory fraction, and count different lines inside it:

    vLLM           share of all memory; weights, activations, collectives and (since 0.21) graphs
                   are inside
    SGLang         share of what is free before the weights are loaded; activations and graphs
                   live in the rest
    TensorRT-LLM   share of what is free after weights and activations; graphs live in the rest

All are per device. Used by the topics of memory and capacity.
"""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, floor, largest


@law
def split_bytes(whole_bytes: Number, tensor_parallel: Number, pipeline_parallel: Number) -> Number:
    """What one device holds of weights that tensor and pipeline parallelism split.

    Source: Megatron-LM, 2019; norms and other small replicated tensors are not counted.
    """
    return whole_bytes / (tensor_parallel * pipeline_parallel)


@law
def share_of_all_bytes(memory_bytes: Number, memory_share: Number, inside_bytes: Number) -> Number:
    """Cache where the fraction is of all memory and all that is counted lies inside it.

    Source: vLLM, gpu_memory_utilization (worker memory profile).
    """
    return memory_share * memory_bytes - inside_bytes


@law
def share_of_free_before_bytes(
    memory_bytes: Number, memory_share: Number, before_bytes: Number, held_bytes: Number
) -> Number:
    """Cache where the fraction is of what is free before the weights are loaded.

    Source: SGLang v0.5, mem_fraction_static: free after loading - (1 - fraction) x free before.
    """
    return memory_share * (memory_bytes - before_bytes) - held_bytes


@law
def share_of_free_after_bytes(
    memory_bytes: Number, memory_share: Number, taken_bytes: Number
) -> Number:
    """Cache where the fraction is of what weights and activations have left free.

    Source: TensorRT-LLM, KvCacheConfig.free_gpu_memory_fraction.
    """
    return memory_share * (memory_bytes - taken_bytes)


@law
def cache_blocks(pool_bytes: Number, block_bytes: Number, least: Number = 0.0) -> Number:
    """Whole blocks of a paged cache that a pool holds.

    Source: vLLM, 2023 (PagedAttention).
    """
    return largest(fit=floor(pool_bytes / block_bytes), none=least)


@law
def sequences_that_fit(pool_bytes: Number, sequence_bytes: Number, least: Number = 0.0) -> Number:
    """Whole sequences whose caches a pool holds at once; none where the pool is used up.

    Source: floor of the ratio.
    """
    return largest(fit=floor(pool_bytes / sequence_bytes), none=least)


@law
def grouped_weight_bytes(
    params: Number, value_bytes: Number, group: Number, scale_bytes: Number = 2.0
) -> Number:
    """Weights of few bits with a scale for each group of values.

    Source: Frantar et al. 2022 (GPTQ), Lin et al. 2023 (AWQ): one 16-bit scale a group.
    """
    return params * (value_bytes + scale_bytes / group)
