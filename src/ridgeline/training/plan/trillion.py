"""A trillion parameters: all of them active, or in experts; both readings beside each other."""

from ridgeline.catalog.accelerators import Accelerator, dtype_bytes
from ridgeline.errors import SpecError
from ridgeline.physics.training import (
    training_flop_per_token,
    training_state_bytes,
    training_tokens_per_s,
)
from ridgeline.quantity import Number, Quantity, ceil, floor, holds
from ridgeline.show import show
from ridgeline.topics import Answer, amount, an_accelerator, choice, count, topic

_READINGS = ("total", "active")


@topic("trillion-training", subject="training")
def trillion_training(
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    params: Number = amount("1T", "params", "Parameters as they are named.", least="1B"),
    reading: str = choice("total", _READINGS, "Whether the named number is total or active."),
    sparsity: Number = amount("32", "x", "Total over active parameters of the mixture.", least="1"),
    routed_share: Number = amount("0.97", "", "Share of parameters in routed experts.", most="1"),
    experts: Number = count(384, "Routed experts a layer.", noun="experts"),
    expert_parallel: Number = count(64, "Ranks that split the experts.", noun="ranks"),
    tokens: Number = amount("15T", "Ttokens", "Tokens to train on.", least="1"),
    gpus: Number = count(8192, "Devices of the run.", noun="GPUs"),
    mfu: Number = amount("0.35", "", "Share of the peak that is reached.", least="0.001", most="1"),
    link: Number = amount("400 Gb/s", "Gb/s", "Network of each device.", least="1 Gb/s"),
) -> Answer:
    """State, compute, time and layout of a model of a trillion parameters, dense or in experts.

    "1T" means a dense model, a mixture with that many in all, or one that activates as many.
    State follows the total, compute the active parameters.
    """
    total = (params if reading == "total" else params * sparsity).named("total_params", "params")
    active = (total / sparsity).named("active_params", "params")
    _check_groups(experts, expert_parallel, gpus)
    state = training_state_bytes(total).named("state_bytes")
    card = accelerator.memory_bytes
    routed = (total * routed_share).named("routed_params", "params")
    dense = (total - routed).named("shared_params", "params")
    expert_state = training_state_bytes(routed / expert_parallel).named(
        "expert_state_bytes", note="of the experts on one rank of the group, before sharding"
    )
    replicas = floor(gpus / expert_parallel).named("expert_replicas", note="groups of experts")
    rank = training_state_bytes(dense) / gpus + expert_state / replicas
    moved = (routed / expert_parallel * dtype_bytes("bf16")).named("expert_gradients")

    def days(counted: Quantity) -> Quantity:
        flop = training_flop_per_token(counted)
        rate = training_tokens_per_s(gpus, accelerator.flop_per_s("bf16"), mfu, flop)
        return (tokens / rate).named("run_s", "days")

    readings = {
        "dense, all active": (params, params),
        "mixture, as the total": (params, params / sparsity),
        "mixture, as the active part": (params * sparsity, params),
    }
    return Answer(
        "{state_bytes} of state need {state_gpus} of memory before activations; {run_s} on "
        "{gpus} as a mixture, {run_dense_s} if every parameter is active",
        {
            "state_bytes": state,
            "state_gpus": ceil(state / card).named("state_gpus", "GPUs"),
            "run_s": days(active),
            "run_dense_s": days(total).named("run_dense_s", "days"),
            "run_flop": (training_flop_per_token(active) * tokens).named("run_flop"),
            "total_params": total,
            "active_params": active,
            "expert_replicas": replicas,
            "experts_per_rank": (experts / expert_parallel).named("experts_per_rank", "experts"),
            "rank_state_bytes": rank.named("rank_state_bytes", note="sharded over all replicas"),
            "expert_sync_s": (moved / link).named(
                "expert_sync_s", note="gradients of a rank's experts between groups"
            ),
        },
        table=tuple(
            {
                "reading": name,
                "state_bytes": training_state_bytes(whole).named("state_bytes"),
                "flop_per_token": training_flop_per_token(busy),
                "run_s": days(busy),
            }
            for name, (whole, busy) in readings.items()
        ),
        notes=(
            "layout: experts over ranks of one group, attention by tensor or data parallelism "
            "beside them, groups repeated for data; `training-layout --model kimi-k2` searches it",
            "experts add a failure mode: a hot or collapsed expert stalls or starves its group, "
            "and the router's balance has to be watched",
            "experts add another: losing one rank of an all-to-all stops its whole group, "
            "so a failure takes out more devices than in data parallelism",
        ),
    )


def _check_groups(experts: Quantity, ranks: Quantity, gpus: Quantity) -> None:
    """Experts have to divide over the ranks of a group, and one group has to be there."""
    if not holds(experts.value % ranks.value == 0):
        raise SpecError(
            f"{ranks.value:.0f} ranks do not divide {experts.value:.0f} experts",
            where="expert-parallel",
            remedy=f"a divisor of {experts.value:.0f}",
        )
    if not holds(gpus >= ranks):
        raise SpecError(
            f"{show(gpus)} are fewer than the {ranks.value:.0f} ranks of one group of experts",
            where="gpus",
            remedy="more devices, or a smaller expert-parallel",
        )
