"""Layouts: the published ones are found, the memory adds up, and what cannot divide is refused."""

import time
from typing import Any

import numpy as np
import pytest

from ridgeline.catalog.accelerators import accelerator
from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import Asked, ask

topics()

PEAK_TFLOP_PER_S = accelerator("h100-sxm").flop_per_s("bf16").value / 1e12
LLAMA = {"tensor_parallel": 8, "pipeline_parallel": 16, "context_parallel": 1}


def layout(**given: object) -> Asked:
    return ask("training-layout", given)


@pytest.mark.proves("S047")
def test_tp8_pp16_dp128_is_among_the_five_best_for_405b_on_16384_gpus_at_35_to_45_percent():
    asked = layout(model="llama-3.1-405b", gpus=16384, global_batch=2048, sequence_tokens="8k")
    best = {str(row["layout"]): row for row in asked.answer.table[:5]}
    assert "TP8 PP16 DP128" in best
    assert 0.35 <= best["TP8 PP16 DP128"]["mfu"].value <= 0.45
    for name in ("tensor_s", "context_s", "data_s", "bubble_s", "rank_bytes", "bubble", "mfu"):
        assert name in asked.answer.values


@pytest.mark.parametrize("data_overlap", ["0.5", "0.8", "1"])
def test_that_ranking_does_not_hang_on_how_much_traffic_hides(data_overlap: str):
    asked = layout(data_overlap=data_overlap)
    assert "TP8 PP16 DP128" in [str(row["layout"]) for row in asked.answer.table[:5]]


@pytest.mark.parametrize(
    ("gpus", "context", "batch", "sequence", "published"),
    [(8192, 1, 2048, "8k", 430), (16384, 1, 2048, "8k", 400), (16384, 16, 128, "128k", 380)],
)
def test_the_three_published_rates_of_llama_3_405b_are_what_three_constants_are_fitted_to(
    gpus: int, context: int, batch: int, sequence: str, published: float
):
    """Llama 3 (2024), table 4: TFLOP/s a GPU."""
    asked = layout(
        **LLAMA | {"context_parallel": context},
        gpus=gpus,
        global_batch=batch,
        sequence_tokens=sequence,
    )
    found = asked.answer.values["mfu"].value * PEAK_TFLOP_PER_S
    assert found == pytest.approx(published, rel=0.01)


# Tokens a second a GPU that NVIDIA publishes: Megatron-Bridge (25.11) and, with bf16 on H100 and
# experts, Automodel (2025-10). Degrees are TP, PP, CP, EP.
DENSE = [
    ("llama-3.1-405b", "h100-sxm", 1024, 512, (8, 8, 2, 1), "fp8", 292),
    ("llama-3.1-70b", "h100-sxm", 64, 128, (4, 8, 1, 1), "fp8", 1602),
    ("llama-3-8b", "h100-sxm", 8, 128, (1, 1, 1, 1), "fp8", 14451),
    ("llama-3.1-405b", "b200-sxm", 128, 64, (4, 8, 2, 1), "fp8", 661),
    ("llama-3-8b", "b200-sxm", 8, 128, (1, 1, 1, 1), "fp8", 30624),
    ("llama-3.1-405b", "gb200", 256, 1536, (4, 16, 1, 1), "fp8", 813),
    ("llama-3.1-70b", "gb200", 64, 256, (1, 1, 1, 1), "fp8", 4312),
]
MIXTURES = [
    ("deepseek-v3", "h100-sxm", 1024, 8192, (1, 4, 1, 64), "bf16", 865),
    ("deepseek-v3", "h100-sxm", 256, 512, (1, 4, 1, 64), "bf16", 1002),
    ("kimi-k2", "h100-sxm", 256, 512, (1, 8, 1, 32), "bf16", 924),
    ("qwen3-30b-a3b", "h100-sxm", 8, 512, (1, 1, 1, 8), "bf16", 12040),
    ("deepseek-v3", "gb200", 256, 4096, (1, 4, 1, 64), "bf16", 3139),
    ("qwen3-235b-a22b", "gb200", 256, 8192, (1, 8, 1, 32), "bf16", 4916),
]


def errors(runs: list[tuple[Any, ...]], sequence: str) -> list[float]:
    """How far each prediction is from what was published; none of these runs was fitted to."""
    found = []
    for model, chip, gpus, batch, (tp, pp, cp, ep), dtype, published in runs:
        asked = layout(
            model=model,
            accelerator=chip,
            gpus=gpus,
            global_batch=batch,
            sequence_tokens=sequence,
            tensor_parallel=tp,
            pipeline_parallel=pp,
            context_parallel=cp,
            expert_parallel=ep,
            dtype=dtype,
        )
        found.append(abs(asked.answer.values["tokens_per_s"].value / gpus / published - 1))
    return sorted(found)


def test_dense_models_in_runs_of_nvidia_come_out_within_16_percent_and_half_within_7():
    off = errors(DENSE, "8k")
    assert off[-1] < 0.16
    assert off[len(off) // 2] < 0.07


def test_these_mixtures_in_runs_of_nvidia_come_out_within_31_percent():
    assert errors(MIXTURES, "4k")[-1] < 0.31


def test_the_memory_of_a_layout_is_the_sum_that_a_person_would_write():
    asked = layout(**LLAMA, gpus=16384, zero="1", recompute="none", memory_share="1")
    h, f, a, kv, d, v, layers = 16384, 53248, 128, 8, 128, 128256, 126
    params = asked.inputs["model"].params.value
    body = (params - 2 * v * h) / layers
    rank = (8 * body + v * h) / 8  # 8 layers on a stage of 126 / 16, one table at its end
    state = rank * (2 + 4 + 12 / 128)
    token = (2 * h + h + h) + (2 * a * d + 2 * kv * d + 3 * f)  # two norms, two inputs; the rest
    layer = 8192 * token * 2 / 8  # sequence parallel: all of it is split over 8 ranks
    first_stage = layer * 8 * 16  # 16 micro-batches of a DP rank, all in flight at v = 8
    assert asked.answer.values["state_bytes"].value == pytest.approx(state, rel=1e-6)
    assert asked.answer.values["activation_bytes"].value == pytest.approx(first_stage, rel=1e-6)


@pytest.mark.parametrize(
    ("stage", "bytes_each"), [("1", 2 + 4 + 12 / 64), ("2", 2 + 4 / 64 + 12 / 64)]
)
def test_zero_stages_share_out_optimizer_then_gradients(stage: str, bytes_each: float):
    asked = layout(**LLAMA, gpus=8192, zero=stage, memory_share="1")
    rank = next(q for q in asked.find("rank_params"))
    assert asked.answer.values["state_bytes"].value == pytest.approx(rank.value * bytes_each)


def test_the_search_on_arrays_and_the_explained_winner_give_the_same_numbers():
    from ridgeline.training.plan.layouts import Row, explained, rank
    from ridgeline.training.plan.shape import machine_of, work_of

    asked = layout(**LLAMA)
    inputs = asked.inputs
    work = work_of(inputs["model"], inputs["sequence_tokens"], inputs["global_batch"])
    chip = inputs["accelerator"]
    machine = machine_of(
        chip,
        "bf16",
        gpus=inputs["gpus"],
        link_bytes_per_s=chip.link_bytes_per_s * inputs["link_share"],
        nic_bytes_per_s=chip.nic_bytes_per_s * inputs["nic_share"],
        matmul_share=inputs["matmul_share"],
        attention_share=inputs["attention_share"],
        overlap=inputs["overlap"],
        data_overlap=inputs["data_overlap"],
        link_latency_s=inputs["link_latency_s"],
        nic_latency_s=inputs["nic_latency_s"],
        gradient_bytes=inputs["gradient_bytes"],
        value_bytes=inputs["gradient_bytes"] / 2,
    )
    rows = [
        Row(tp, pp, cp, 1, 16384 // (tp * pp * cp), v, 1, zero, level)
        for tp in (4, 8)
        for pp in (8, 16)
        for cp in (1, 2)
        for v in (1, 4)
        for zero in (1, 2, 3)
        for level in ("none", "elementwise", "full")
    ]
    for row in rows:
        found = rank(work, machine, [row], np.inf)
        assert found.rows == (row,)
    from ridgeline.training.plan.layouts import _arrays
    from ridgeline.training.plan.shape import bare
    from ridgeline.training.plan.step import step

    many = step(bare(work), bare(machine), _arrays(rows))
    for index, row in enumerate(rows):
        _, one = explained(work, machine, row, "test")
        for name in ("memory_bytes", "step_s", "mfu", "data_s", "tensor_s", "context_s"):
            array = np.broadcast_to(getattr(many, name), len(rows))
            assert getattr(one, name).value == pytest.approx(array[index]), (row, name)


def test_a_search_over_thousands_of_layouts_takes_a_few_seconds_at_most():
    begin = time.process_time()
    asked = layout(context_parallel=0)
    assert time.process_time() - begin < 5
    assert "layouts divide" in asked.answer.notes[0]
    assert int(asked.answer.notes[0].split()[0].replace(",", "")) > 5000


@pytest.mark.parametrize(("tensor", "members"), [(1, 8), (2, 4), (8, 1)])
def test_gathers_cross_the_network_as_rings_do_that_enter_each_node_at_another_member(
    tensor: int, members: int
):
    """One ring a member, each with its part of the bytes, walked rank by rank over 4 nodes."""
    asked = layout(
        model="llama-3.1-8b", gpus=32, global_batch=1024, tensor_parallel=tensor,
        pipeline_parallel=1, zero="1", recompute="full", memory_share="1", micro_batch=1,
        nic_share="1", link_share="1",
    )  # fmt: skip
    nodes, carried = 4, [0.0] * members
    ranks = nodes * members
    for ring in range(members):
        order = [(node, (ring + k) % members) for node in range(nodes) for k in range(members)]
        for at, (node, member) in enumerate(order):
            if order[(at + 1) % ranks][0] != node:  # its NIC sends this ring's part on
                carried[member] += (ranks - 1) / ranks / members / nodes
    assert len({round(one, 12) for one in carried}) == 1
    params = next(iter(asked.find("rank_params"))).value
    sent = params * (2 + 4) * carried[0]  # gathered in 16 bits, reduced in 32
    expected = sent / min(50e9, 450e9 / members)
    traffic = next(iter(asked.find("data_traffic_s"))).value
    assert traffic == pytest.approx(expected, rel=1e-6)


def test_schedule_and_micro_batch_can_be_set_and_what_cannot_be_scheduled_is_refused():
    given = LLAMA | {"gpus": 16384, "virtual_stages": 2, "micro_batch": 1}
    asked = layout(**given)
    assert {str(row["schedule"])[:6] for row in asked.answer.table} == {"v2 mb1"}
    assert asked.answer.values["bubble"].value == pytest.approx(15 / (2 * 16))
    for wrong, where in (
        ({"micro_batch": 3}, "micro-batch"),
        ({"micro_batch": 2, "virtual_stages": 2}, "micro-batch"),  # 8 micro-batches, 16 stages
        ({"virtual_stages": 100}, "virtual-stages"),
    ):
        with pytest.raises(SpecError, match="do not make whole micro-batches") as caught:
            layout(**LLAMA, gpus=16384, **wrong)
        assert caught.value.where == where


def test_deeper_pipelines_wait_longer_and_more_micro_batches_less():
    bubble = {
        batch: layout(**LLAMA, global_batch=batch).answer.values["bubble"].value
        for batch in (2048, 4096)
    }
    assert bubble[2048] == pytest.approx(15 / (8 * 16))
    assert bubble[4096] == pytest.approx(15 / (8 * 32))


def test_1472_gpus_at_tp8_pp8_with_a_batch_of_32_are_refused_since_dp_is_23():
    """aliyun/SimAI#202 accepted it."""
    with pytest.raises(SpecError, match="DP = 23") as caught:
        layout(
            model="llama-3.1-70b",
            gpus=1472,
            tensor_parallel=8,
            pipeline_parallel=8,
            global_batch=32,
        )
    assert caught.value.where == "global-batch"
    assert "23 or 46 sequences" in caught.value.remedy


@pytest.mark.parametrize(
    ("given", "where", "words"),
    [
        ({"tensor_parallel": 6}, "tensor-parallel", "6 does not divide 128 attention heads"),
        (
            {"model": "all-minilm-l6-v2", "tensor_parallel": 4},
            "tensor-parallel",
            "4 does not divide a vocabulary of 30,522",
        ),
        ({"pipeline_parallel": 200, "gpus": 1600}, "pipeline-parallel", "200 stages"),
        ({"tensor_parallel": 8, "pipeline_parallel": 3}, "gpus", "cannot be split 24 ways"),
        ({"model": "mixtral-8x7b", "expert_parallel": 3}, "expert-parallel", "8 experts"),
        ({"gpus": 23 * 64, "global_batch": 31}, "global-batch", "no split"),
        ({"context_parallel": 3}, "context-parallel", "do not divide 8,192 tokens"),
    ],
)
def test_what_cannot_divide_is_refused_with_field_problem_and_remedy(
    given: dict[str, object], where: str, words: str
):
    with pytest.raises(SpecError, match=words) as caught:
        layout(**given)
    assert caught.value.where == where
    assert caught.value.remedy


def test_a_cluster_too_small_for_the_model_answers_no_and_says_what_comes_nearest():
    asked = layout(gpus=8, global_batch=64)
    assert not asked.answer.ok
    assert asked.answer.values["rank_bytes"].value > asked.answer.values["usable_bytes"].value


def test_a_mixture_splits_its_experts_and_pays_for_the_exchange():
    whole, split = (
        layout(model="mixtral-8x22b", gpus=256, global_batch=512, expert_parallel=n).answer.values
        for n in (1, 8)
    )
    assert whole["expert_s"].value == 0
    assert split["expert_s"].value > 0
