"""One training step under a layout: what the fullest rank keeps, and where its time goes.

Written once for numbers of any kind: the search runs it on arrays, the answer on quantities, so
that the winner can be explained.
"""

from ridgeline.physics.parallel import exposed_s
from ridgeline.physics.roofline import compute_s, read_s
from ridgeline.physics.training import (
    bubble_of_ideal,
    in_flight,
    logit_bytes,
    reached_mfu,
    rows_share,
    sharded_state_bytes,
    training_flop_per_token,
)
from ridgeline.quantity import Number, ceil, choose, largest
from ridgeline.training.plan.activations import RECOMPUTE
from ridgeline.training.plan.activations import kept_bytes_per_token as kept_bytes
from ridgeline.training.plan.shape import PASSES, Layout, Machine, Step, Work, named
from ridgeline.training.plan.traffic import context_s, data_s, expert_s, hop_s, tensor_s


def step(work: Work, machine: Machine, layout: Layout) -> Step:
    """Memory, time and utilisation of one step."""
    share = work.batch / (layout.data * layout.micro_batch)
    micro_batches = named(share, "micro_batches")
    spread = layout.pipeline * layout.chunks
    stage_layers = named(layout.chunks * ceil(work.layers / spread), "stage_layers", "layers")
    tokens = layout.micro_batch * work.sequence_tokens / layout.context
    tokens = named(tokens, "rank_tokens", "tokens")
    dense, routed = _stage_params(work, layout, stage_layers)
    state = _state_bytes(work, machine, layout, dense, routed)
    activations = _activation_bytes(work, layout, stage_layers, tokens, micro_batches)

    layer_s, flop_s = _layer_s(work, machine, layout, tokens)
    tensor = tensor_s(work, machine, layout, tokens)
    context = context_s(work, machine, layout, tokens)
    expert = expert_s(work, machine, layout, tokens)
    head = _head_s(work, machine, layout, tokens)
    stage = stage_layers * (layer_s + tensor + context + expert) + head
    stage = named(stage, "stage_s", note="one micro-batch on the busiest stage, both ways")
    hop = hop_s(work, machine, layout, tokens)
    bubble = bubble_of_ideal(layout.pipeline, micro_batches, layout.chunks)
    steady = micro_batches * (stage + exposed_s(layout.chunks * hop, stage))
    ramp = named((layout.pipeline - 1) * hop, "ramp_s", note="first and last micro-batch's way")
    data = data_s(machine, layout, dense, routed, stage, micro_batches)
    whole = named(steady * (1 + bubble) + ramp + data, "step_s")
    per_step = micro_batches * stage_layers
    flop = training_flop_per_token(work.active_params) * work.sequence_tokens * work.batch
    flop = flop + PASSES * work.attention_flop * work.batch
    return Step(
        state_bytes=state,
        activation_bytes=activations,
        memory_bytes=named(state + activations, "rank_bytes"),
        micro_batches=micro_batches,
        bubble=bubble,
        compute_s=named(per_step * flop_s, "compute_s"),
        tensor_s=named(per_step * tensor, "tensor_s"),
        context_s=named(per_step * context, "context_s"),
        expert_s=named(per_step * expert, "expert_s"),
        pipeline_s=named(steady * bubble + ramp, "bubble_s"),
        data_s=data,
        step_s=whole,
        mfu=named(
            reached_mfu(named(flop, "model_flop"), whole, machine.gpus, machine.peak_flop_per_s),
            "mfu",
            "%",
        ),
    )


def _stage_params(work: Work, layout: Layout, stage_layers: Number) -> tuple[Number, Number]:
    """Parameters of the busiest rank: shared ones, and those of routed experts."""
    halves = choose(layout.pipeline > 1, 2.0, 1.0, why="input and output on different stages")
    ends = work.embedding_params / halves
    dense = (stage_layers * work.layer_params + ends) / layout.tensor
    routed = stage_layers * work.routed_layer_params / (layout.tensor * layout.expert)
    return named(dense, "rank_params", "params"), named(routed, "rank_expert_params", "params")


def _state_bytes(
    work: Work, machine: Machine, layout: Layout, dense: Number, routed: Number
) -> Number:
    """Weights, gradients and optimizer of the rank, sharded as the ZeRO stage says."""
    two, three = layout.zero >= 2, layout.zero >= 3
    optimizer = 6.0 * machine.value_bytes  # a master copy and two moments in 32 bits

    def part(params: Number, replicas: Number) -> Number:
        return sharded_state_bytes(
            params,
            machine.value_bytes,
            machine.gradient_bytes,
            optimizer,
            choose(three, replicas, 1.0, why="weights are sharded"),
            choose(two, replicas, 1.0, why="gradients are sharded"),
            replicas,
        )

    gathered = 2.0 * work.layer_params / layout.tensor * machine.value_bytes
    held = choose(three, gathered, 0.0 * gathered, why="two layers are gathered at a time")
    experts = part(routed, layout.replicas / layout.expert)
    return named(part(dense, layout.replicas) + experts + held, "state_bytes")


def _activation_bytes(
    work: Work, layout: Layout, stage_layers: Number, tokens: Number, micro_batches: Number
) -> Number:
    """Activations of the first stage, which keeps the most micro-batches, or of the last one."""
    ranks = layout.tensor
    kinds = {"tensor_parallel": ranks, "sequence_parallel": ranks}
    whole = tokens * kept_bytes(work.block, "swiglu", RECOMPUTE["none"], **kinds)
    layer = named(
        tokens * kept_bytes(work.block, "swiglu", layout.kept, **kinds), "bytes_per_layer"
    )
    depth = in_flight(layout.pipeline, micro_batches, layout.chunks)
    work_bytes = choose(layout.kept.block < 4, whole, 0.0 * whole, why="layers are computed again")
    logits = logit_bytes(tokens, work.vocab, ranks)
    return named(
        largest(first_stage=layer * stage_layers * depth, last_stage=layer * stage_layers + logits)
        + work_bytes,
        "activation_bytes",
    )


def _layer_s(work: Work, machine: Machine, layout: Layout, tokens: Number) -> tuple[Number, Number]:
    """A layer's arithmetic, forward, backward and again, and the part that is matrix products."""
    visited = work.routed_layer_params * work.top_k / work.experts
    multiplied = named(work.layer_params + visited, "multiplied_params", "params")
    matmul_flop = training_flop_per_token(multiplied) * tokens / layout.tensor
    ways = layout.tensor * layout.context
    scores_flop = PASSES * work.attention_flop / work.layers * layout.micro_batch / ways
    reached = machine.matmul_share * rows_share(tokens)
    products = compute_s(matmul_flop, machine.peak_flop_per_s, reached)
    scores = compute_s(scores_flop, machine.wide_flop_per_s, machine.attention_share)
    moved = kept_bytes(
        work.block,
        "swiglu",
        RECOMPUTE["none"],
        tensor_parallel=layout.tensor,
        sequence_parallel=layout.tensor,
    )
    moved = 2.0 * moved * tokens  # each is written once and read once
    one_pass = named(read_s(moved, machine.memory_bytes_per_s), "elementwise_s")
    light = choose(layout.kept.block < 4, one_pass, 0.0 * one_pass, why="computed again")
    arithmetic = products + scores
    once = arithmetic * (1 + layout.again / PASSES)
    return named(once + PASSES * one_pass + light, "layer_s"), arithmetic


def _head_s(work: Work, machine: Machine, layout: Layout, tokens: Number) -> Number:
    """The output head's arithmetic, spread over stages as layers are left out for it."""
    flop = training_flop_per_token(work.head_params) * tokens / (layout.tensor * layout.pipeline)
    return named(compute_s(flop, machine.wide_flop_per_s, machine.matmul_share), "head_s")
