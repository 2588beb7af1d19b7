"""Layouts of a training run: all that divide are tried, and the best is explained."""

from dataclasses import replace

from ridgeline.catalog.accelerators import Accelerator, dtype_bytes
from ridgeline.catalog.models import Model
from ridgeline.physics.training import bubble_of_total
from ridgeline.quantity import Number, Quantity, value_of
from ridgeline.topics import Answer, a_model, amount, an_accelerator, choice, count, topic
from ridgeline.training.plan.layouts import (
    LEVELS,
    Fixed,
    Found,
    Row,
    candidates,
    check,
    explained,
    rank,
)
from ridgeline.training.plan.shape import Machine, Work, machine_of, work_of

_SHOWN = 10


@topic("training-layout", subject="training")
def training_layout(
    model: Model = a_model("llama-3.1-405b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    gpus: Number = count(16_384, "Devices of the run.", noun="GPUs"),
    global_batch: Number = count(2048, "Sequences of one step.", noun="sequences"),
    sequence_tokens: Number = amount("8k", "tokens", "Tokens of a sequence.", least="1"),
    tensor_parallel: Number = count(0, "Ranks that split a layer; 0 searches.", least=0),
    pipeline_parallel: Number = count(0, "Stages of layers; 0 searches.", least=0),
    context_parallel: Number = count(
        1, "Ranks that split a sequence; 1 keeps it whole, 0 searches.", least=0
    ),
    expert_parallel: Number = count(0, "Ranks that split the experts; 0 searches.", least=0),
    virtual_stages: Number = count(
        0, "Chunks of layers on each stage (interleaving); 0 searches.", least=0
    ),
    micro_batch: Number = count(0, "Sequences of a micro-batch; 0 searches.", least=0),
    zero: str = choice("search", ("search", "1", "2", "3"), "Which state replicas share out."),
    recompute: str = choice("search", ("search", *LEVELS), "What the backward computes again."),
    dtype: str = choice("bf16", ("bf16", "fp8"), "Type of the matrix products."),
    gradient_bytes: Number = amount(
        "4 B", "B", "Bytes of a gradient as it is summed.", least="1 B"
    ),
    memory_share: Number = amount(
        "0.9", "", "Share of memory for state and activations.", least="0.01", most="1"
    ),
    matmul_share: Number = amount(
        "0.575",
        "",
        "Share of the peak that matrix products reach over a run.",
        least="0.01",
        most="1",
        interval=("0.5", "0.7"),
        source="fitted to 430 TFLOP/s a GPU on 8,192 H100 (Llama 3, 2024, table 4)",
    ),
    attention_share: Number = amount(
        "0.415",
        "",
        "Share of the peak that attention reaches, forward and backward.",
        least="0.01",
        most="1",
        interval=("0.2", "0.6"),
        source="fitted to 380 TFLOP/s a GPU at 131,072 tokens (Llama 3, 2024, table 4); runs of "
        "torchtitan and MosaicML at 32,768 tokens and more fit 0.2",
    ),
    link_share: Number = amount(
        "0.8",
        "",
        "Share of the links' rate that collectives reach.",
        least="0.01",
        most="1",
        source="NCCL all-reduce on 8 x H100: 325-350 of 450 GB/s, to 430 with switch offload",
    ),
    nic_share: Number = amount(
        "0.8",
        "",
        "Share of the network's rate that collectives reach.",
        least="0.01",
        most="1",
        source="assumed: a tuned fabric without congestion",
    ),
    link_latency_s: Number = amount(
        "15.6us",
        "us",
        "Start of a collective within a domain.",
        source="NCCL all-reduce of a few hundred bytes on 8 x H100, measured",
    ),
    nic_latency_s: Number = amount(
        "25us",
        "us",
        "Start of a message over the network.",
        interval=("10us", "40us"),
        source="assumed: NCCL send and receive across a fabric of three tiers",
    ),
    overlap: Number = amount(
        "0", "", "Share of tensor and expert traffic that hides behind arithmetic.", most="1"
    ),
    data_overlap: Number = amount(
        "0.8",
        "",
        "Share of a micro-batch's time behind which gradients and weights can travel.",
        most="1",
        interval=("0.5", "1"),
        source="fitted to the fall from 430 to 400 TFLOP/s at twice the GPUs (Llama 3, table 4)",
    ),
) -> Answer:
    """The best split of a training run over devices: degrees, memory, time on each axis, MFU.

    Every layout that divides is tried: tensor x context x pipeline x data, experts, interleaving,
    micro-batch, ZeRO stage, recomputation. Those that fit in memory are ranked by step time.
    """
    fixed = Fixed(
        tensor=_whole(tensor_parallel),
        pipeline=_whole(pipeline_parallel),
        context=_whole(context_parallel),
        expert=_whole(expert_parallel),
        chunks=_whole(virtual_stages),
        micro_batch=_whole(micro_batch),
        zero=0 if zero == "search" else int(zero),
        recompute=recompute,
    )
    machine = machine_of(
        accelerator,
        dtype,
        gpus=gpus,
        link_bytes_per_s=(accelerator.link_bytes_per_s * link_share).named("link_rate"),
        nic_bytes_per_s=(accelerator.nic_bytes_per_s * nic_share).named("nic_rate"),
        matmul_share=matmul_share,
        attention_share=attention_share,
        overlap=overlap,
        data_overlap=data_overlap,
        link_latency_s=link_latency_s,
        nic_latency_s=nic_latency_s,
        gradient_bytes=gradient_bytes,
        value_bytes=dtype_bytes("bf16"),
    )
    work = work_of(model, sequence_tokens, global_batch)
    room = (machine.memory_bytes * memory_share).named("usable_bytes")
    check(model, work, machine, fixed)
    found = rank(work, machine, candidates(work, machine, fixed), float(room.value))
    answer = _answer(work, machine, room, found, fixed)
    cost = _cost_command(model, accelerator, dtype, gpus, answer.values["mfu"])
    return replace(answer, notes=(*answer.notes, f"what a run costs at this MFU: {cost}"))


def _cost_command(
    model: Model, accelerator: Accelerator, dtype: str, gpus: Quantity, mfu: Quantity
) -> str:
    return (
        f"ridgeline plan training-cost --model {model.id} --accelerator {accelerator.id} "
        f"--dtype {dtype} --gpus {_whole(gpus)} --mfu {float(value_of(mfu)):.3f}"
    )


def _whole(number: Quantity) -> int:
    return round(float(value_of(number)))


def _answer(work: Work, machine: Machine, room: Quantity, found: Found, fixed: Fixed) -> Answer:
    source = f"the best of {found.tried:,} layouts, of which {found.fit:,} fit"
    best = found.rows[0]
    layout, run = explained(work, machine, best, source)
    tokens_per_s = (work.sequence_tokens * work.batch / run.step_s).named("tokens_per_s")
    total = bubble_of_total(layout.pipeline, run.micro_batches, layout.chunks)
    return Answer(
        f"{best} is the fastest that fits: {{mfu}} MFU, {{step_s}} a step, {{rank_bytes}} a device"
        if found.fit
        else f"no layout fits; {best} comes nearest with {{rank_bytes}} for {{usable_bytes}}",
        {
            "mfu": run.mfu,
            "step_s": run.step_s,
            "tokens_per_s": tokens_per_s,
            "rank_bytes": run.memory_bytes,
            "state_bytes": run.state_bytes,
            "activation_bytes": run.activation_bytes,
            "usable_bytes": room,
            "bubble": run.bubble.named("bubble", "%", note="of the busy time"),
            "bubble_of_step": total.named("bubble_of_step", "%"),
            "compute_s": run.compute_s,
            "bubble_s": run.pipeline_s,
            "tensor_s": run.tensor_s,
            "context_s": run.context_s,
            "expert_s": run.expert_s,
            "data_s": run.data_s,
            "micro_batches": run.micro_batches,
            "tensor_parallel": layout.tensor,
            "pipeline_parallel": layout.pipeline,
            "context_parallel": layout.context,
            "data_parallel": layout.data,
            "expert_parallel": layout.expert,
        },
        table=tuple(_row(work, machine, row, source) for row in found.rows[:_SHOWN]),
        notes=(
            f"{found.tried:,} layouts divide, {found.fit:,} of them fit; each split is listed "
            "once, with its best schedule",
            _searched(fixed),
            "MFU counts 6 N a token and causal attention, over the dense rate of its type",
            "half of NVIDIA's and Megatron's published dense runs come out within 9 %, half of "
            "torchtitan's only within 43 %, half of mixtures within 28 % (bench/training.py): what "
            "software reaches of a chip differs more than layouts do",
        ),
        ok=bool(found.fit),
    )


def _searched(fixed: Fixed) -> str:
    """Which degrees were set and which were searched."""
    degrees = {
        "tensor": fixed.tensor,
        "pipeline": fixed.pipeline,
        "context": fixed.context,
        "expert": fixed.expert,
        "virtual stages": fixed.chunks,
        "micro-batch": fixed.micro_batch,
        "ZeRO stage": fixed.zero,
    }
    chosen = [f"{name} {degree}" for name, degree in degrees.items() if degree]
    return f"set: {', '.join(chosen)}; all else was searched" if chosen else "all was searched"


def _row(work: Work, machine: Machine, row: Row, source: str) -> dict[str, Quantity | str]:
    _, run = explained(work, machine, row, source)
    return {
        "layout": str(row),
        "schedule": f"v{row.chunks} mb{row.micro_batch} zero{row.zero} {row.recompute}",
        "mfu": run.mfu,
        "step_s": run.step_s,
        "rank_bytes": run.memory_bytes,
        "bubble": run.bubble.named("bubble", "%"),
    }
