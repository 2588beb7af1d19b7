"""One decode step of one copy of a model as the roofline has it: bytes read, FLOPs, seconds.

The ideal that topics of capacity and of the roofline reason with; `steps` has the model with
fitted coefficients, and what engines add.
"""

from dataclasses import dataclass

from ridgeline.catalog.accelerators import Accelerator, dtype_bytes
from ridgeline.catalog.models import Model
from ridgeline.errors import CatalogError, SpecError
from ridgeline.physics.memory import sequences_that_fit
from ridgeline.physics.roofline import compute_s, decode_step_s, read_s, ridge_tokens, roofline_s
from ridgeline.physics.size import distinct_experts
from ridgeline.quantity import Number, Provenance, Quantity, given, holds
from ridgeline.serving.plan.splits import check_decodes
from ridgeline.topics import DTYPES

#: Types that weights may have; `native` is as the publisher ships them, types mixed.
WEIGHT_DTYPES = (*DTYPES, "native")


@dataclass(frozen=True)
class Decode:
    """A model on the devices that share its weights, all of them together.

    Cache is split over heads as far as they go and replicated beyond, unless `whole_cache` says
    that each sequence lives on one device (attention parallel over sequences). `attained` and
    `mfu` are the shares of bandwidth and of the peak that are reached.
    """

    model: Model
    accelerator: Accelerator
    devices: Number
    dtype: str = "bf16"
    kv_dtype: str = "bf16"
    attained: Number = 1.0
    mfu: Number = 1.0
    whole_cache: bool = False

    def __post_init__(self) -> None:
        check_decodes(self.model)

    @property
    def weights_bytes(self) -> Quantity:
        """All weights, whichever of them a step reads."""
        return self.model.weights_bytes(self.dtype)

    def read_bytes(self, batch: Number) -> Quantity:
        """Weights that a step over so many sequences reads: all but the experts nobody visits."""
        if not self.model.is_moe:
            return self.weights_bytes
        touched = self.experts_touched(batch)
        unread = self.routed_bytes * (1 - touched / self.model.experts)
        return (self.weights_bytes - unread).named("read_bytes", note="experts nobody visits stay")

    def experts_touched(self, batch: Number) -> Quantity:
        """Distinct experts that a layer reads; not top-k, and not `active` parameters."""
        return distinct_experts(self.model.experts, self.model.top_k, batch)

    @property
    def routed_bytes(self) -> Quantity:
        """The weights of all routed experts."""
        kind = self.model.native_dtypes["experts"] if self.dtype == "native" else self.dtype
        return (self.model.routed_params * dtype_bytes(kind)).named("routed_bytes")

    def sequence_bytes(self, context_tokens: Number) -> Quantity:
        """Cache of one sequence on all devices together, replicas included."""
        if self.whole_cache:
            return self.model.cache_bytes(context_tokens, self.kv_dtype).named("sequence_bytes")
        one = self.model.cache_bytes_per_rank(context_tokens, self.kv_dtype, self.devices)
        return (self.devices * one).named("sequence_bytes")

    def sequences_that_fit(self, left_bytes: Number, context_tokens: Number) -> Quantity:
        """Whole sequences in what all devices have left; a cache that is not split fits one."""
        one = self.sequence_bytes(context_tokens)
        if not self.whole_cache:
            return sequences_that_fit(left_bytes, one)
        each = sequences_that_fit(left_bytes / self.devices, one)
        return (self.devices * each).named("sequences_that_fit")

    def usable_bytes(self, memory_share: Number) -> Quantity:
        """What weights and caches may take of the memory of all devices."""
        memory = self.devices * self.accelerator.memory_bytes
        return (memory * memory_share).named("usable_bytes")

    def left_bytes(self, memory_share: Number) -> Quantity:
        """Room for caches beside the weights; below 0 where those do not fit."""
        left = self.usable_bytes(memory_share) - self.weights_bytes
        return left.named("left_bytes", note="for the cache")

    def must_fit(self, memory_share: Number, context_tokens: Number) -> Quantity:
        """As `sequences_that_fit`; SpecError where not even one does."""
        fit = self.sequences_that_fit(self.left_bytes(memory_share), context_tokens)
        if not holds(fit >= 1):
            raise SpecError(
                f"{self.model.name} in {self.dtype} leaves no memory for one request",
                where="gpus",
                remedy="more devices, narrower weights or a shorter prompt",
            )
        return fit.named("sequences_that_fit", "sequences")

    def sequence_flop(self, context_tokens: Number) -> Quantity:
        """Arithmetic of one sequence in one step: one token, attention included."""
        one = self.model.decode_flop_per_token(context_tokens)
        return (one * one_token()).named("sequence_flop")

    @property
    def bytes_per_s(self) -> Quantity:
        """Bandwidth of all devices, as far as it is attained."""
        rate = self.devices * self.accelerator.memory_bytes_per_s * self.attained
        return rate.named("attained_bytes_per_s")

    @property
    def peak_flop_per_s(self) -> Quantity:
        """Dense rate of all devices for the type of the weights.

        Raises CatalogError where the devices have no units for a type that was asked for. Weights
        `native` to the model run in the type of its experts, or widened to bf16.
        """
        rate = self.devices * self._rate()
        return rate.named("devices_flop_per_s")

    def _rate(self) -> Quantity:
        if self.dtype != "native":
            return self.accelerator.flop_per_s(self.dtype)
        kind = self.model.native_dtypes["experts"]
        try:
            return self.accelerator.flop_per_s(kind)
        except CatalogError:
            widened = f"{self.accelerator.name} has no units for {kind}: widened to bf16"
            return self.accelerator.flop_per_s("bf16").but(note=widened)

    def _value_bytes(self) -> Quantity:
        if self.dtype != "native":
            return dtype_bytes(self.dtype)
        return (self.weights_bytes / self.model.params).named("native_value_bytes", note="mean")

    def ridge_batch(self) -> Quantity:
        """The batch whose weights take as long to read as to multiply, the cache left out.

        Of a mixture a token multiplies only the active part of what a large batch reads.
        """
        rate = self._rate() * self.mfu
        bandwidth = self.accelerator.memory_bytes_per_s * self.attained
        tokens = ridge_tokens(rate, bandwidth, self._value_bytes())
        if self.model.is_moe:
            tokens = tokens * self.model.params / self.model.active_params
        return (tokens / one_token()).named("ridge_batch", "sequences")

    def weights_s(self) -> Quantity:
        """Time to read all weights once."""
        return read_s(self.weights_bytes, self.bytes_per_s).named("weights_read_s")

    def sequence_read_s(self, context_tokens: Number) -> Quantity:
        """Time to read the cache of one sequence."""
        seconds = read_s(self.sequence_bytes(context_tokens), self.bytes_per_s)
        return seconds.named("sequence_read_s")

    def sequence_compute_s(self, context_tokens: Number) -> Quantity:
        """Time of the arithmetic of one sequence."""
        seconds = compute_s(self.sequence_flop(context_tokens), self.peak_flop_per_s, self.mfu)
        return seconds.named("sequence_compute_s")

    def step_s(self, batch: Number, context_tokens: Number) -> Quantity:
        """The step: reads and arithmetic overlap, the longer of the two binds."""
        cache = (batch * self.sequence_bytes(context_tokens)).named("batch_cache_bytes")
        memory = decode_step_s(self.read_bytes(batch), cache, self.bytes_per_s)
        work = (batch * self.sequence_flop(context_tokens)).named("step_flop")
        return roofline_s(memory, compute_s(work, self.peak_flop_per_s, self.mfu)).named("step_s")


def one_token() -> Quantity:
    """The token that each sequence gains in a decode step."""
    return given(
        1,
        "tokens",
        name="step_tokens",
        provenance=Provenance.DEFINED,
        source="a decode step makes one token a sequence",
    )
