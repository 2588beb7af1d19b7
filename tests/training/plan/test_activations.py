"""Activations against Korthikanti et al. 2022 (arXiv 2205.05198), and today's blocks."""

import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()


def value(given: dict[str, object], name: str = "bytes_per_layer") -> float:
    return float(ask("activation-memory", given).answer.values[name].value)


@pytest.mark.proves("S097")
def test_the_rule_gives_2_28_gb_a_layer_and_182_5_gb_a_micro_batch_and_swiglu_its_own_number():
    given = {"model": "llama-3.1-70b", "sequence_tokens": "8k", "block": "gelu"}
    assert value(given) == pytest.approx(34 * 8192 * 8192)
    assert value(given) == pytest.approx(2.28e9, rel=0.01)
    assert value(given, "micro_batch_bytes") == pytest.approx(182.5e9, rel=0.01)
    # norms 4, inputs 2 x 2 of them counted once, Q and the result 4, K and V 0.5, three of 3.5 h
    assert value(given, "swiglu_coefficient") == pytest.approx(8 + 4 + 0.5 + 3 * 2 * 3.5)
    unfused = value({"fused_gate": "no"}, "swiglu_coefficient")
    assert unfused == pytest.approx(40.5)


@pytest.mark.parametrize("tensor", [1, 2, 4, 8])
@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("batch", [1, 4])
def test_the_rule_is_the_papers_formula_with_and_without_sequence_parallelism(
    tensor: int, sequence_parallel: bool, batch: int
):
    s, h, a = 2048, 8192, 64
    found = value(
        {
            "sequence_tokens": str(s),
            "micro_batch": batch,
            "block": "gelu",
            "flash_attention": False,
            "tensor_parallel": tensor,
            "sequence_parallel": sequence_parallel,
        }
    )
    if sequence_parallel:
        paper = s * batch * h / tensor * (34 + 5 * a * s / h)
    else:
        paper = s * batch * h * (10 + 24 / tensor + 5 * a * s / (h * tensor))
    assert found == pytest.approx(paper)


def test_selective_recomputation_drops_the_scores_and_full_keeps_only_a_layers_input():
    common = {"sequence_tokens": "2048", "block": "gelu", "flash_attention": False}
    s, h = 2048, 8192
    assert value(common | {"recompute": "scores"}) == pytest.approx(34 * s * h)
    assert value(common | {"recompute": "full"}) == pytest.approx(2 * s * h)
    assert value(common | {"recompute": "full"}, "recompute_share") == pytest.approx(1 / 3)


def test_two_norms_a_layer_are_whole_on_every_rank_unless_the_sequence_is_split():
    """cli99/llm-analysis#19 counted one norm and split it."""
    s, h = 8192, 8192
    many = 10**6  # so many ranks that everything split is gone
    kept = value({"block": "gelu", "tensor_parallel": many})
    assert kept == pytest.approx(10 * s * h, rel=1e-3)  # two norms are 4 of the 10
    swiglu = value({"tensor_parallel": 64})
    without = value({"tensor_parallel": 64, "sequence_parallel": True})
    assert swiglu - without == pytest.approx(8 * s * h * (1 - 1 / 64))


def test_kv_heads_are_replicated_when_there_are_more_ranks_than_heads():
    eight, sixteen = (value({"tensor_parallel": n, "sequence_parallel": True}) for n in (8, 16))
    s, kv = 8192, 128
    assert 2 * sixteen - eight == pytest.approx(2 * 2 * kv * s)  # one head a rank in both


def test_flash_attention_removes_21_gb_of_scores_a_layer():
    saved = value({"flash_attention": False}) - value({"flash_attention": True})
    assert saved == pytest.approx(5 * 64 * 8192**2)
    assert saved == pytest.approx(21.47e9, rel=0.01)
