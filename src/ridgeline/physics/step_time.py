"""How long one engine step takes: the model that plans, simulations and live thresholds share.

    step = max(weights read, arithmetic) + cache read + attention of prompts
         + layers, all-reduces, sequences, a fixed part      (what engines add to the roofline)

`StepTime` joins a `Shape` (what a model on a machine has to move and compute) with `Coefficients`
(what a machine and an engine make of it). It computes on floats, arrays and quantities alike.
Coefficients come from a fit (`catalog.step_times`); `physics.fit` says how they are found.

Source of the form: BLIS trained-physics and our own fit on published measurements, 2026.
"""

from dataclasses import dataclass, fields

from ridgeline.physics.law import law
from ridgeline.quantity import Number, choose, largest, smallest


@law
def expert_share(
    experts: Number, top_k: Number, pass_tokens: Number, one_tokens: Number = 1.0
) -> Number:
    """Share of the routed experts' weights that a pass over so many tokens reads.

    Source: expected union of independent draws, 1 - (1 - k/E)^T.
    """
    return 1 - (1 - top_k / experts) ** (pass_tokens / one_tokens)


@law
def weights_pass_s(
    read_bytes: Number,
    work_flop: Number,
    memory_bytes_per_s: Number,
    peak_flop_per_s: Number,
    memory_share: Number,
    compute_share: Number,
) -> Number:
    """All matrix products of a step: weights are read once while tokens are multiplied.

    Source: roofline model with achieved shares of both peaks.
    """
    return largest(
        memory=read_bytes / (memory_bytes_per_s * memory_share),
        compute=work_flop / (peak_flop_per_s * compute_share),
    )


@law
def cache_read_s(kv_bytes: Number, memory_bytes_per_s: Number, cache_share: Number) -> Number:
    """Decode attention: every cached key and value is read once.

    Source: FlashDecoding; the share is fitted, and may pass 1 where nominal lengths are too long.
    """
    return kv_bytes / (memory_bytes_per_s * cache_share)


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
def prompt_attention_s(
    attention_flop_per_token_token: Number,
    window_flop_per_token_token: Number,
    prompt_tokens: Number,
    attended_tokens: Number,
    sliding_window_tokens: Number,
    peak_flop_per_s: Number,
    compute_share: Number,
) -> Number:
    """Attention of prompt tokens, each over `attended_tokens` on average, or over a window.

    Source: PaLM appendix B, 2022; Mistral 7B, 2023.
    """
    seen = smallest(context=attended_tokens, window=sliding_window_tokens)
    far = attention_flop_per_token_token * prompt_tokens * attended_tokens
    near = window_flop_per_token_token * prompt_tokens * seen
    return (far + near) / (peak_flop_per_s * compute_share)


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

    `source` says where they come from: the key of a fit, or a default.
    """

    memory_share: Number
    cache_share: Number
    compute_share: Number
    layer_s: Number
    all_reduce_s: Number
    sequence_s_per_token: Number
    fixed_s: Number
    source: str = ""


#: The names of the coefficients, in the order of a fit's vector.
NAMES = tuple(field.name for field in fields(Coefficients) if field.name != "source")


@dataclass(frozen=True, slots=True)
class Shape:
    """What a model on so many devices moves and computes in a step; all devices together.

    `routed_bytes` is the part of `weights_bytes` that belongs to routed experts, 0 for a dense
    model. Caches count their replicas: `kv_bytes_per_token` is of layers that grow,
    `window_bytes_per_token` of those that keep `window_tokens` at most, `state_bytes_per_token`
    what a sequence's state moves a step; attention's FLOPs are split likewise.
    `hidden_bytes_per_token` is one row of activations. Rates are of one device.
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
        shape, fitted = self.shape, self.coefficients
        tokens = _sum(decode_tokens, prompt_tokens)
        spent = weights_pass_s(
            self._read_bytes(tokens),
            shape.flop_per_token * tokens,
            shape.memory_bytes_per_s * shape.tensor_parallel,
            shape.peak_flop_per_s * shape.tensor_parallel,
            fitted.memory_share,
            fitted.compute_share,
        )
        if decode_tokens is not None:
            memory = shape.memory_bytes_per_s * shape.tensor_parallel
            cached = self._cached_bytes(decode_tokens, cached_tokens)
            spent = spent + cache_read_s(cached, memory, fitted.cache_share)
        if prompt_tokens is not None:
            spent = spent + prompt_attention_s(
                shape.attention_flop_per_token_token,
                shape.window_flop_per_token_token,
                prompt_tokens,
                attended_tokens,
                shape.window_tokens,
                shape.peak_flop_per_s * shape.tensor_parallel,
                fitted.compute_share,
            )
        return spent + self._added_s(decode_tokens, tokens)

    def decode_s(self, decode_tokens: Number, cached_tokens: Number) -> Number:
        """A step that only decodes."""
        return self.step_s(decode_tokens, cached_tokens)

    def prefill_s(self, prompt_tokens: Number) -> Number:
        """A step that only prefills one fresh prompt."""
        return self.step_s(prompt_tokens=prompt_tokens, attended_tokens=prompt_tokens / 2)

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

    def _read_bytes(self, tokens: Number) -> Number:
        shape = self.shape
        if not isinstance(shape.routed_bytes, int) or shape.routed_bytes:
            share = expert_share(shape.experts, shape.top_k, tokens)
            return shape.weights_bytes - shape.routed_bytes * (1 - share)
        return shape.weights_bytes

    def _added_s(self, decode_tokens: Number, tokens: Number) -> Number:
        """What the engine and the links add."""
        shape, fitted = self.shape, self.coefficients
        return (
            engine_s(
                shape.layers,
                0.0 * tokens if decode_tokens is None else decode_tokens,
                fitted.layer_s,
                fitted.sequence_s_per_token,
                fitted.fixed_s,
            )
            + all_reduces_s(shape.layers, shape.tensor_parallel, fitted.all_reduce_s)
            + ring_s(
                shape.hidden_bytes_per_token * tokens,
                shape.tensor_parallel,
                shape.layers,
                shape.link_bytes_per_s,
            )
        )


def _sum(*parts: Number) -> Number:
    """Of the parts that are there."""
    there = [part for part in parts if part is not None]
    assert there, "a step computes something"
    return there[0] if len(there) == 1 else there[0] + there[1]
