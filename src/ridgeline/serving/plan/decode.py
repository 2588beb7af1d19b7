"""One copy of a model on its devices: what it holds, what a step moves, and how long that takes.

What a step does is counted here, for one context and exactly; how long it takes is `StepTime`'s,
with the coefficients of the roofline (a bound, which topics of arithmetic reason with) or with
those that were fitted to an engine.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ridgeline.catalog.accelerators import Accelerator, dtype_bytes
from ridgeline.catalog.models import Model
from ridgeline.catalog.step_times import ANY, FittedStep
from ridgeline.errors import SpecError
from ridgeline.physics.memory import sequences_that_fit
from ridgeline.physics.roofline import fitting_batch, ridge_tokens
from ridgeline.physics.size import distinct_experts
from ridgeline.physics.step_time import Coefficients, Sides, StepTime, Work, roofline
from ridgeline.quantity import Number, Provenance, Quantity, given, holds
from ridgeline.serving.plan.splits import check_decodes, points
from ridgeline.serving.plan.steps import (
    fitted_step,
    routed_bytes,
    shape_of,
    widened_flop_per_s,
)
from ridgeline.topics import DTYPES, choice
from ridgeline.working.formula import bound

#: Types that weights may have; `native` is as the publisher ships them, types mixed.
WEIGHT_DTYPES = (*DTYPES, "native")

#: Whose step time is taken: the bound, a fit over all engines, or one engine's.
ROOFLINE = "roofline"
ENGINES = (ROOFLINE, ANY, "vllm", "sglang", "trtllm")


def an_engine(default: str = ROOFLINE) -> Any:
    """A topic's parameter: whose step times to take."""
    told = "Whose step: roofline is a bound, the others are fitted; * is over all engines."
    return choice(default, ENGINES, told)


@dataclass(frozen=True)
class Decode:
    """A model on the devices that share its weights, all of them together.

    Cache is split over heads as far as they go and replicated beyond, unless `whole_cache` says
    that each sequence lives on one device (attention parallel over sequences). `attained` and
    `mfu` are the shares of bandwidth and of the peak that are reached under the roofline; a fitted
    `engine` has its own.
    """

    model: Model
    accelerator: Accelerator
    devices: Number
    dtype: str = "bf16"
    kv_dtype: str = "bf16"
    attained: Number = 1.0
    mfu: Number = 1.0
    whole_cache: bool = False
    engine: str = ROOFLINE

    def __post_init__(self) -> None:
        check_decodes(self.model)

    @property
    def is_fitted(self) -> bool:
        """Whether times are what measurements say, and not a bound."""
        return self.engine != ROOFLINE

    @cached_property
    def fit(self) -> FittedStep:
        """The fit whose coefficients are taken; only where it is fitted."""
        assert self.is_fitted
        return fitted_step(self.model, self.accelerator, engine=self.engine, dtype=self.dtype)

    @cached_property
    def coefficients(self) -> Coefficients:
        """What the machine and the engine make of a step."""
        return self.fit.coefficients if self.is_fitted else roofline(self.attained, self.mfu)

    @cached_property
    def steps(self) -> StepTime:
        """The step-time model; SpecError where a fit would be stretched over several domains."""
        model, chip = self.model, self.accelerator
        if self.is_fitted and max(points(self.devices - chip.domain)) > 0:
            raise SpecError(
                f"steps are fitted within one domain, {chip.domain.value:g} of {chip.name}",
                where="engine",
                remedy=f"engine={ROOFLINE}, or fewer devices",
            )
        shape = shape_of(model, chip, self.devices, self.dtype, self.kv_dtype, self.is_fitted)
        return StepTime(shape, self.coefficients)

    @property
    def weights_bytes(self) -> Quantity:
        """All weights, whichever of them a step reads."""
        return self.model.weights_bytes(self.dtype)

    def read_bytes(self, batch: Number) -> Quantity:
        """Weights that a step over so many sequences reads: all but the experts nobody visits."""
        if not self.model.is_moe:
            return self.weights_bytes
        touched = self.experts_touched(batch)
        unread = routed_bytes(self.model, self.dtype) * (1 - touched / self.model.experts)
        return (self.weights_bytes - unread).named("read_bytes", note="experts nobody visits stay")

    def experts_touched(self, batch: Number) -> Quantity:
        """Distinct experts that a layer reads; not top-k, and not `active` parameters."""
        return distinct_experts(self.model.experts, self.model.top_k, batch)

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
        peak = self.devices * self.accelerator.memory_bytes_per_s
        rate = peak * self.coefficients.bandwidth_share
        return rate.named("attained_bytes_per_s")

    @property
    def peak_flop_per_s(self) -> Quantity:
        """Dense rate of all devices for the type of the weights.

        A bound raises CatalogError where the devices have no units for a type that was asked for.
        Engines widen such weights to bf16, and those `native` to the model are here too.
        """
        rate = self.devices * self._rate()
        return rate.named("devices_flop_per_s")

    def _rate(self) -> Quantity:
        if self.dtype == "native" or self.is_fitted:
            return widened_flop_per_s(self.model, self.accelerator, self.dtype)
        return self.accelerator.flop_per_s(self.dtype)

    def _value_bytes(self) -> Quantity:
        if self.dtype != "native":
            return dtype_bytes(self.dtype)
        return (self.weights_bytes / self.model.params).named("native_value_bytes", note="mean")

    def ridge_batch(self) -> Quantity:
        """The batch whose weights take as long to read as to multiply, the cache left out.

        Of a mixture a token multiplies only the active part of what a large batch reads.
        """
        rate = self._rate() * self.coefficients.compute_share
        bandwidth = self.accelerator.memory_bytes_per_s * self.coefficients.bandwidth_share
        tokens = ridge_tokens(rate, bandwidth, self._value_bytes())
        if self.model.is_moe:
            tokens = tokens * self.model.params / self.model.active_params
        return (tokens / one_token()).named("ridge_batch", "sequences")

    def work(self, batch: Number, context_tokens: Number) -> Work:
        """What a decode step over so many sequences with such contexts does."""
        tokens = (batch * one_token()).named("decode_tokens")
        attention = self.model.attention_flop_per_token(context_tokens) * tokens
        return Work(
            self.read_bytes(batch),
            (self.model.flop_per_token() * tokens).named("products_flop"),
            tokens,
            tokens,
            (batch * self.sequence_bytes(context_tokens)).named("batch_cache_bytes"),
            decode_attention_flop=attention.named("step_attention_flop"),
        )

    def sides(self, context_tokens: Number) -> Sides:
        """Both sides of a step that reads all weights, as experts of a large batch are."""
        self._rate()
        one = given(1, name="one_sequence", provenance=Provenance.DEFINED, source="each")
        work = replace(self.work(one, context_tokens), read_bytes=self.weights_bytes)
        found = self.steps.sides(work)
        return Sides(
            found.weights_s.named("weights_read_s"),
            found.reads_each_s.named("sequence_read_s"),
            found.arithmetic_each_s.named("sequence_compute_s"),
            found.added_s if found.added_s is None else found.added_s.named("added_s"),
        )

    def batch_by_reads(self, limit_s: Number, context_tokens: Number) -> Quantity:
        """The largest batch whose reads, and what an engine adds, stay within a time."""
        sides = self.sides(context_tokens)
        return fitting_batch(limit_s, _once(sides), sides.reads_each_s)

    def batch_by_arithmetic(self, limit_s: Number, context_tokens: Number) -> Quantity:
        """The largest batch whose arithmetic, and what an engine adds, stays within a time."""
        sides = self.sides(context_tokens)
        once = 0 * limit_s if sides.added_s is None else sides.added_s
        return fitting_batch(limit_s, once, sides.arithmetic_each_s)

    def step_s(self, batch: Number, context_tokens: Number) -> Quantity:
        """A decode step: of its reads and its arithmetic the longer, and what an engine adds."""
        return self.spent_s(self.work(batch, context_tokens)).named("step_s")

    def prefill_s(self, prompt_tokens: Number, attention_flop: Number = None) -> Quantity:
        """A step that prefills one prompt, its causal attention counted where it is not given."""
        attention = attention_flop
        if attention is None:
            attention = self.model.attention_flop(prompt_tokens)
        work = Work(
            self.read_bytes(prompt_tokens / one_token()),
            (self.model.flop_per_token() * prompt_tokens).named("products_flop"),
            prompt_tokens,
            prompt_attention_flop=attention,
        )
        return self.spent_s(work).named("prefill_s")

    def affordable_flop(self, limit_s: Number) -> Quantity:
        """Arithmetic of a prefill step that takes so long."""
        rate = self.peak_flop_per_s * self.coefficients.compute_share
        if self.is_fitted:
            limit_s = limit_s - self.steps.added_s(None, 0 * one_token())
        return (limit_s * rate).named("affordable_flop")

    def prefill_flop_per_token(self) -> Quantity:
        """Arithmetic of a prompt's token, attention apart; time on links as if it were FLOPs."""
        linear = self.model.flop_per_token()
        if not self.is_fitted:
            return linear
        sent_s = self.steps.added_s(None, one_token()) - self.steps.added_s(None, 0 * one_token())
        rate = self.peak_flop_per_s * self.coefficients.compute_share
        return linear + sent_s * rate / one_token()

    def readable_bytes(self, limit_s: Number, batch: Number) -> Quantity:
        """Cache that a decode step of so long can read beside all weights; below 0 where none."""
        free_s = limit_s - self.steps.weights_s(self.weights_bytes)
        if self.is_fitted:
            tokens = batch * one_token()
            free_s = free_s - self.steps.added_s(tokens, tokens)
        return (free_s * self.steps.cache_bytes_per_s).named("readable_bytes")

    def spent_s(self, work: Work) -> Quantity:
        """The time of a step that does this much; CatalogError where a bound has no rate."""
        self._rate()
        spent: Quantity = self.steps.work_s(work)
        return spent

    def binds(self, step_s: Quantity) -> str:
        """Which of memory and arithmetic the products of a step wait for."""
        passes = (one for one in step_s.walk() if one.labels == ("memory", "compute"))
        return next((bound(one) for one in passes), "")

    def told(self) -> str:
        """A note on what its times are: a bound, or how near the fit is to what it has seen."""
        if not self.is_fitted:
            ideal = max(points(self.attained)) >= 1 and max(points(self.mfu)) >= 1
            shares = (
                "a bound that no engine reaches" if ideal else "at the given shares of its peaks"
            )
            return (
                f"Times are those of the roofline, {shares}, and nothing that an engine adds is in "
                "them: --engine takes steps fitted to one."
            )
        return (
            f"Times are fitted ({self.fit.id}): half of the {self.fit.points:,} points measured "
            f"lie within {self.fit.median_error:.0%} of it."
        )


def _once(sides: Sides) -> Quantity:
    """What a step spends on its reading side whatever the batch."""
    once: Quantity = sides.weights_s
    return once if sides.added_s is None else once + sides.added_s


def one_token() -> Quantity:
    """The token that each sequence gains in a decode step."""
    return given(
        1,
        "tokens",
        name="step_tokens",
        provenance=Provenance.DEFINED,
        source="a decode step makes one token a sequence",
    )
