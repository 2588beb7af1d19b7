"""How long one engine step takes: the model that plans, simulations and live thresholds share.

    expected = max(weights read, arithmetic) + cache read + attention of prompts
             + layers, all-reduces, sequences, a fixed part  (what engines add to the roofline)
    bound    = max(all reads, all arithmetic)                (the roofline: all that can overlaps)

`StepTime` joins a `Shape` (what a model on a machine has to move and compute) with `Coefficients`
(what a machine and an engine make of it). It computes on floats, arrays and quantities alike.
Coefficients come from a fit (`catalog.step_times`; `physics.fit` says how they are found), or are
`roofline()`, the ideal. `Work` is what one step does: a shape counts it for sums of contexts, and
who knows the model and the context exactly (`serving.plan.decode`) counts it exactly.

Source of the form: BLIS trained-physics and our own fit on published measurements, 2026.
"""

from dataclasses import dataclass, fields

from ridgeline.physics.law import law
from ridgeline.physics.roofline import compute_s, read_s, roofline_s
from ridgeline.physics.size import distinct_experts
from ridgeline.quantity import Number, choose, smallest


@law
def step_cache_bytes(
    decode_tokens: Number,
    cached_tokens: Number,
    cached_bytes_per_token: Number,
    window_bytes_per_token: Number,
    sliding_window_tokens: Number,
    state_bytes_per_token: Number,
    one_tokens: Number = 1.0,
) -> Number:
    """Cache that a decode step reads: growing layers all of it, others a window or a state.

    `decode_tokens` is one for each sequence; `cached_tokens` the sum of their contexts.

    Source: counting; exact where all sequences are as long.
    """
    capped = smallest(
        context=cached_tokens, window=decode_tokens * sliding_window_tokens / one_tokens
    )
    return (
        cached_tokens * cached_bytes_per_token
        + capped * window_bytes_per_token
        + decode_tokens * state_bytes_per_token
    )


@law
def prompt_attention_flop(
    attention_flop_per_token_token: Number,
    window_flop_per_token_token: Number,
    prompt_tokens: Number,
    attended_tokens: Number,
    sliding_window_tokens: Number,
) -> Number:
    """Attention of prompt tokens, each over `attended_tokens` on average, or over a window.

    Source: PaLM appendix B, 2022; Mistral 7B, 2023.
    """
    seen = smallest(context=attended_tokens, window=sliding_window_tokens)
    far = attention_flop_per_token_token * prompt_tokens * attended_tokens
    near = window_flop_per_token_token * prompt_tokens * seen
    return far + near


@law
def engine_s(
    layers: Number,
    step_tokens: Number,
    layer_s: Number,
    sequence_s_per_token: Number,
    fixed_s: Number,
) -> Number:
    """What an engine adds: launches a layer, bookkeeping a sequence, a fixed part a step.

    Source: the form of BLIS (Go, Apache-2.0): 32 us a layer, 4 us a request, 126 us a step.
    """
    return layers * layer_s + step_tokens * sequence_s_per_token + fixed_s


@law
def all_reduces_s(
    layers: Number, tensor_parallel: Number, all_reduce_s: Number, all_reduces_a_layer: Number = 2.0
) -> Number:
    """Latency of the all-reduces of a step: two a layer, none on a single device.

    Source: Megatron-LM, 2019.
    """
    spent = all_reduces_a_layer * layers * all_reduce_s
    return choose(tensor_parallel > 1, spent, 0.0 * spent, why="more than one device")


@law
def ring_s(
    message_bytes: Number, tensor_parallel: Number, layers: Number, link_bytes_per_s: Number
) -> Number:
    """Bytes of the all-reduces of a step over the links, 2 (p-1)/p of the message each.

    Source: ring all-reduce, Patarasuk and Yuan 2009.
    """
    return (
        2 * layers * 2 * (tensor_parallel - 1) / tensor_parallel * message_bytes / link_bytes_per_s
    )


@law
def closed_loop_tpot_s(
    decode_s: Number,
    prefill_s: Number,
    concurrency: Number,
    output_tokens: Number,
    one_tokens: Number = 1.0,
) -> Number:
    """Time per output token with C clients in a closed loop: the others' prompts come in between.

    Each of the other C - 1 slots prefills once in the life of a request.

    Source: mean-field argument; the same as AIConfigurator's mixed steps.
    """
    return decode_s + (concurrency - 1) * prefill_s * one_tokens / output_tokens


@dataclass(frozen=True, slots=True)
class Coefficients:
    """What a machine and an engine make of the laws; shares of a peak, and seconds.

    `source` says where they come from: the key of a fit, or a default. Where it `overlaps`, caches
    are read while weights multiply, and what engines add is hidden too: a bound, not a fit.
    """

    bandwidth_share: Number
    cache_share: Number
    compute_share: Number
    layer_s: Number
    all_reduce_s: Number
    sequence_s_per_token: Number
    fixed_s: Number
    source: str = ""
    overlaps: bool = False


#: The names of the coefficients, in the order of a fit's vector.
NAMES = tuple(
    field.name for field in fields(Coefficients) if field.name not in ("source", "overlaps")
)


def roofline(bandwidth_share: Number = 1.0, compute_share: Number = 1.0) -> Coefficients:
    """The ideal: shares of both peaks as said, nothing added, and all that can overlaps."""
    shares = (bandwidth_share, bandwidth_share, compute_share)
    return Coefficients(*shares, 0.0, 0.0, 0.0, 0.0, source="the roofline", overlaps=True)


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model on so many devices moves and computes in a step; all devices together.

    `routed_bytes` is the part of `weights_bytes` that belongs to routed experts, 0 for a dense
    model. Caches count their replicas: `kv_bytes_per_token` is of layers that grow,
    `window_bytes_per_token` of those that keep `window_tokens` at most, `state_bytes_per_token`
    what a sequence's state moves a step; attention's FLOPs are split likewise.
    `hidden_bytes_per_token` is one row of activations. Rates are of one device; a bound leaves
    links out. `one_tokens` is one token, in the unit of a step's tokens.
    """

    weights_bytes: Number
    routed_bytes: Number
    experts: Number
    top_k: Number
    flop_per_token: Number
    attention_flop_per_token_token: Number
    window_flop_per_token_token: Number
    window_tokens: Number
    kv_bytes_per_token: Number
    window_bytes_per_token: Number
    state_bytes_per_token: Number
    hidden_bytes_per_token: Number
    layers: Number
    tensor_parallel: Number
    memory_bytes_per_s: Number
    peak_flop_per_s: Number
    link_bytes_per_s: Number
    one_tokens: Number = 1.0


@dataclass(frozen=True, slots=True)
class Work:
    """What one step does, on all devices together; None where there is none of it.

    `read_bytes` and `flop` are of the weights and their products, `tokens` pass through them, of
    which `decode_tokens` are one a decoding sequence, whose caches are `cached_bytes`. The
    arithmetic of decode's attention hides behind its reads in every engine; only a bound looks.
    """

    read_bytes: Number
    flop: Number
    tokens: Number
    decode_tokens: Number = None
    cached_bytes: Number = None
    prompt_attention_flop: Number = None
    decode_attention_flop: Number = None


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides of a decode step: weights once, what a sequence reads, and what it computes.

    `added_s` is what an engine adds once, on either side; None where nothing is.
    """

    weights_s: Number
    reads_each_s: Number
    arithmetic_each_s: Number
    added_s: Number = None


@dataclass(frozen=True, slots=True)
class StepTime:
    """The step-time model of one model on one machine under one engine."""

    shape: Shape
    coefficients: Coefficients

    def step_s(
        self,
        decode_tokens: Number = None,
        cached_tokens: Number = None,
        prompt_tokens: Number = None,
        attended_tokens: Number = None,
    ) -> Number:
        """A step that decodes some sequences, prefills some prompt tokens, or both.

        `decode_tokens` is one token a decoding sequence and `cached_tokens` the sum of their
        contexts; `attended_tokens` is what a prompt token attends to on average (half of a fresh
        prompt). Either pair may be left out.
        """
        work = self.work(decode_tokens, cached_tokens, prompt_tokens, attended_tokens)
        return self.work_s(work)

    def decode_s(self, decode_tokens: Number, cached_tokens: Number) -> Number:
        """A step that only decodes."""
        return self.step_s(decode_tokens, cached_tokens)

    def prefill_s(self, prompt_tokens: Number) -> Number:
        """A step that only prefills one fresh prompt."""
        return self.step_s(prompt_tokens=prompt_tokens, attended_tokens=prompt_tokens / 2)

    def work_s(self, work: Work) -> Number:
        """The time of a step that does this much: the one place where a step's law stands."""
        if self.coefficients.overlaps:
            reads = self.weights_s(_sum(work.read_bytes, work.cached_bytes))
            flop = _sum(work.flop, work.prompt_attention_flop, work.decode_attention_flop)
            return roofline_s(reads, self.compute_s(flop))
        spent = roofline_s(self.weights_s(work.read_bytes), self.compute_s(work.flop))
        if work.cached_bytes is not None:
            spent = spent + self._cache_s(work.cached_bytes)
        if work.prompt_attention_flop is not None:
            spent = spent + self.compute_s(work.prompt_attention_flop)
        return spent + self.added_s(work.decode_tokens, work.tokens)

    def sides(self, one: Work) -> Sides:
        """Of a decode step that reads the weights of `one`, whose rest is of one sequence.

        For batches whose reads of weights do not grow: what solves for a batch needs no search.
        """
        weights, cached = self.weights_s(one.read_bytes), self._cache_s(one.cached_bytes)
        if self.coefficients.overlaps:
            return Sides(weights, cached, self.compute_s(_sum(one.flop, one.decode_attention_flop)))
        once = self.added_s(None, 0.0 * one.tokens)
        each = self.added_s(one.decode_tokens, one.tokens) - once + cached
        return Sides(weights, each, self.compute_s(one.flop) + each, once)

    def work(
        self,
        decode_tokens: Number = None,
        cached_tokens: Number = None,
        prompt_tokens: Number = None,
        attended_tokens: Number = None,
    ) -> Work:
        """What such a step does; contexts as if all were as long, decode's attention as reads."""
        shape, tokens = self.shape, _sum(decode_tokens, prompt_tokens)
        is_decode, is_prompt = decode_tokens is not None, prompt_tokens is not None
        return Work(
            self._read_bytes(tokens),
            shape.flop_per_token * tokens,
            tokens,
            decode_tokens,
            self._cached_bytes(decode_tokens, cached_tokens) if is_decode else None,
            self._attention_flop(prompt_tokens, attended_tokens) if is_prompt else None,
        )

    def weights_s(self, moved: Number) -> Number:
        """Reading so much of the weights."""
        rate = self.shape.memory_bytes_per_s * self.shape.tensor_parallel
        return read_s(moved, rate * self.coefficients.bandwidth_share)

    @property
    def cache_bytes_per_s(self) -> Number:
        """What caches are read at; a fitted share passes 1 where published lengths are nominal."""
        rate = self.shape.memory_bytes_per_s * self.shape.tensor_parallel
        return rate * self.coefficients.cache_share

    def _cache_s(self, moved: Number) -> Number:
        return read_s(moved, self.cache_bytes_per_s)

    def compute_s(self, flop: Number) -> Number:
        """Doing so much arithmetic."""
        rate = self.shape.peak_flop_per_s * self.shape.tensor_parallel
        return compute_s(flop, rate, self.coefficients.compute_share)

    def _read_bytes(self, tokens: Number) -> Number:
        """All weights but those of routed experts that no token visits."""
        shape = self.shape
        if not isinstance(shape.routed_bytes, int) or shape.routed_bytes:
            touched = distinct_experts(shape.experts, shape.top_k, tokens / shape.one_tokens)
            return shape.weights_bytes - shape.routed_bytes * (1 - touched / shape.experts)
        return shape.weights_bytes

    def _cached_bytes(self, decode_tokens: Number, cached_tokens: Number) -> Number:
        """What decoding reads of the cache; windows as if sequences were equally long."""
        shape = self.shape
        return step_cache_bytes(
            decode_tokens,
            cached_tokens,
            shape.kv_bytes_per_token,
            shape.window_bytes_per_token,
            shape.window_tokens,
            shape.state_bytes_per_token,
        )

    def _attention_flop(self, prompt_tokens: Number, attended_tokens: Number) -> Number:
        shape = self.shape
        return prompt_attention_flop(
            shape.attention_flop_per_token_token,
            shape.window_flop_per_token_token,
            prompt_tokens,
            attended_tokens,
            shape.window_tokens,
        )

    def added_s(self, decode_tokens: Number | None, tokens: Number) -> Number:
        """What the engine and the links add to what memory and arithmetic take."""
        shape, fitted = self.shape, self.coefficients
        engine = engine_s(
            shape.layers,
            0.0 * tokens if decode_tokens is None else decode_tokens,
            fitted.layer_s,
            fitted.sequence_s_per_token,
            fitted.fixed_s,
        )
        message = shape.hidden_bytes_per_token * tokens
        ring = ring_s(message, shape.tensor_parallel, shape.layers, shape.link_bytes_per_s)
        latency = all_reduces_s(shape.layers, shape.tensor_parallel, fitted.all_reduce_s)
        return engine + latency + ring


def _sum(*parts: Number) -> Number:
    """Of the parts that are there."""
    there = [part for part in parts if part is not None]
    assert there, "a step does something"
    total = there[0]
    for part in there[1:]:
        total = total + part
    return total
