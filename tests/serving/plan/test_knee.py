"""The knee of throughput against latency, and the cut of the objective at each context."""

import numpy as np
import pytest

from ridgeline.platform.plan import topics
from ridgeline.quantity import Quantity
from ridgeline.topics import Asked, ask
from ridgeline.units import parse_unit
from ridgeline.working.formula import bound

topics()

LEDGER = {"bf16_flop_per_s": "989 TFLOP/s", "memory_bytes_per_s": "3.35 TB/s"}


def knee(**given: str) -> Asked:
    return ask("throughput-knee", given, LEDGER)


def value(asked: Asked, name: str) -> float:
    return float(asked.answer.values[name].value)


def by_hand(context: int, tpot_s: float) -> tuple[int, int]:
    """The batches that the objective and memory allow, one by one until one breaks."""
    weights, each = 70_553_706_496 * 2, 327_680 * context
    work = 2 * 69_503_033_344 + 4 * context * 64 * 128 * 80
    memory = 8 * 85_520_809_984 * 0.9 - weights

    def step(batch: int) -> float:
        return max((weights + batch * each) / (8 * 3.35e12), batch * work / (8 * 989e12))

    within = next(n for n in range(1, 10**6) if step(n) > tpot_s) - 1
    return within, int(memory // each)


@pytest.mark.proves("S165")
def test_the_weights_have_their_knee_at_295_and_the_objective_cuts_each_context_elsewhere():
    asked = knee(tpot_s="25 ms", contexts="512, 2k, 8k, 32k, 128k")
    assert value(asked, "weights_knee_batch") == pytest.approx(295.2, rel=0.001)
    assert len(asked.answer.table) == 5
    for row in asked.answer.table:
        within, held = by_hand(int(row["context"].value), 0.025)
        assert row["objective cuts at"].value == within
        assert row["memory holds"].value == held
        wanted = min(within, held, int(min(row["knee"].value, 1e9)))
        assert row["run"].value == wanted
    cuts = [row["objective cuts at"].value for row in asked.answer.table]
    assert cuts == sorted(cuts, reverse=True)


def test_the_cache_moves_the_knee_out_until_there_is_none():
    assert value(knee(context_tokens="1 token"), "knee_batch") == pytest.approx(300, rel=0.02)
    # 1,500 tokens is where reads stay ahead for good; the catalog's active parameters give 1,477.
    assert 295 < value(knee(context_tokens="1k"), "knee_batch") < 1000
    assert value(knee(context_tokens="8k"), "knee_batch") == float("inf")


def test_at_the_even_batch_half_of_all_throughput_is_reached():
    def throughput(batch: float) -> float:
        return value(knee(context_tokens="8k", batch=f"{batch:.0f}"), "batch_tokens_per_s")

    even = value(knee(context_tokens="8k"), "even_batch")
    assert even == pytest.approx(52.6, rel=0.01)
    assert throughput(even) == pytest.approx(throughput(10_000_000) / 2, rel=0.02)


def test_the_curve_over_the_batch_is_flat_in_latency_then_flat_in_throughput():
    batches = np.array([1.0, 16.0, 256.0, 4096.0])
    sweep = Quantity(batches, parse_unit("sequences"), name="batch")
    values = ask("throughput-knee", {"batch": sweep, "context_tokens": "16 tokens"}).answer.values
    step, rate = values["batch_step_s"].value, values["batch_tokens_per_s"].value
    assert step[1] == pytest.approx(step[0], rel=0.01)
    assert rate[1] == pytest.approx(16 * rate[0], rel=0.01)
    assert rate[3] < 1.2 * rate[2]
    assert step[3] > 10 * step[2]


def test_an_ideal_share_is_told_to_be_a_bound():
    assert any("no engine reaches" in note for note in knee().answer.notes)
    assert not any("no engine" in note for note in knee(roofline_share="0.7").answer.notes)


def test_an_objective_shorter_than_reading_the_weights_allows_no_batch():
    asked = knee(tpot_s="5 ms")
    assert not asked.answer.ok
    assert value(asked, "operating_batch") == 0
    [runs] = asked.find("operating_batch")
    assert bound(runs) == "objective"


def test_a_small_batch_of_a_mixture_reads_only_the_experts_it_visits():
    def step(batch: str) -> float:
        asked = ask(
            "throughput-knee",
            {"model": "deepseek-v3", "dtype": "fp8", "batch": batch, "accelerator": "h200-sxm"},
        )
        return value(asked, "batch_step_s")

    assert step("1") < step("8") < step("64")
    assert step("64") > 5 * step("1")
