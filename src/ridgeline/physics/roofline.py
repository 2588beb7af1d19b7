"""The roofline: what memory and arithmetic allow, and which of the two binds.

Source of the model: Williams, Waterman and Patterson 2009.
"""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, largest


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


@law
def decode_step_s(weights_bytes: Number, kv_bytes: Number, memory_bytes_per_s: Number) -> Number:
    """One decode step while memory binds: all weights and all cached keys are read once.

    Source: roofline model, Williams et al. 2009.
    """
    return (weights_bytes + kv_bytes) / memory_bytes_per_s
