"""The benchmark beside measured vLLM: its arithmetic, and that its errors stay what they are."""

import numpy as np
import pytest

import sim_vs_vllm as bench
from ridgeline.physics.step_time import StepTime
from ridgeline.serving.fake.timing import machine

SUMMARY = """Metric                           vLLM         Sim     Diff%
-----------------------------------------------------------
TTFT Mean                      1000.0      1100.0    +10.0%
TTFT Median                    9442.7      8633.9     -8.6%

TPOT Mean                        50.0        49.0     -2.0%
Latency Mean                  20000.0     20000.0     +0.0%
"""


def times(scale: float = 1.0) -> bench.Times:
    values = scale * np.arange(1.0, 101.0)
    return dict.fromkeys(bench.METRICS, values)


def told(**flags) -> dict:
    sizes = {"tensor_parallel_size": 1, "data_parallel_size": 1}
    limits = {"max_num_seqs": 128, "max_num_batched_tokens": 2048}
    memory = {"mem_bw": 1000}
    return {
        "engine_kwargs": {"model": "meta-llama/Llama-3.1-8B", **sizes, **limits, **flags},
        "kv_cache": None,
        "cluster_config": {
            "link_bw": 16,
            "link_latency": 20000,
            "nodes": [{"instances": [{"npu_mem": memory}]}],
        },
        "llmservingsim_summary": SUMMARY,
    }


def steps(run: bench.Run) -> StepTime:
    found = bench.described(run).steps
    assert isinstance(found, StepTime)
    return found


def test_too_fast_misses_as_much_as_too_slow():
    for scale, ok in ((0.8, False), (0.9, True), (1.1, True), (1.2, False)):
        rows = bench.rows_of("a", times(scale), times(), 0.15)
        means = [row for row in rows if row.target]
        assert [row.ok for row in means] == [ok] * 3
        assert [row.ratio for row in means] == pytest.approx([scale] * 3)


def test_the_99th_percentile_stands_beside_each_mean():
    rows = bench.rows_of("a", times(), times(), 0.15)
    assert [row.case for row in rows[:2]] == ["a: TTFT mean", "a: TTFT p99"]
    assert rows[0].ours == pytest.approx(50_500)
    assert rows[1].ours == pytest.approx(99_000)


def test_a_part_is_scored_alone():
    assert bench.part(times(), slice(98, None))["TPOT"].tolist() == [99, 100]


def test_published_errors_are_read_and_stand_beside_ours():
    run = bench.Run("RTX4090/a", told(), [], {})
    assert bench.published(run) == pytest.approx({"TTFT": 0.1, "TPOT": 0.02, "latency": 0.0})
    beside = bench.beside_published(run, bench.rows_of("a", times(1.05), times(), 0.15))
    assert [row.ours for row in beside] == pytest.approx([0.05] * 3)
    assert [row.peer for row in beside] == pytest.approx([0.1, 0.02, 1e-4])


def test_a_machine_is_as_its_file_describes_it():
    found = steps(bench.Run("RTXPRO6000/a", told(), [], {}))
    assert found.shape.memory_bytes_per_s == 1e12
    assert found.shape.link_bytes_per_s == 16e9
    pair = steps(bench.Run("RTXPRO6000/a", told(tensor_parallel_size=2), [], {}))
    assert pair.coefficients.all_reduce_s == pytest.approx(40e-6)


def test_ranks_in_lockstep_have_all_but_the_experts_twice():
    sharded = machine("qwen3-30b-a3b", "rtx-pro-6000-se", tensor_parallel=2, engine="vllm")
    both = bench.in_lockstep(sharded)
    one, two = sharded.steps.shape, both.steps.shape
    shared = one.weights_bytes - one.routed_bytes
    assert two.weights_bytes == one.weights_bytes + shared
    assert two.routed_bytes == one.routed_bytes
    assert both.kv_tokens == sharded.kv_tokens - int(shared / one.kv_bytes_per_token)
    flags = {"model": "Qwen/Qwen3-30B-A3B-Instruct-2507", "data_parallel_size": 2}
    run = bench.Run("RTXPRO6000/b", told(**flags), [], {})
    assert steps(run).coefficients.all_reduce_s == pytest.approx(20e-6)
    engine = bench.engine(run, bench.described(run)).engine
    assert (engine.max_seqs, engine.max_batched_tokens) == (256, 4096)


def test_without_the_data_it_says_so(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["sim_vs_vllm.py", "--data", str(tmp_path / "none")])
    assert bench.main() == 2
    assert "--data" in capsys.readouterr().err


@pytest.fixture(scope="module")
def runs() -> dict[str, bench.Run]:
    if not bench.DATA.is_dir():
        pytest.skip("the folder ../shared with the measured runs is not here")
    return {run.name: run for run in bench.read_runs(bench.DATA)}


def test_all_runs_are_read_as_published(runs):
    """From the client's asking: LLMServingSim's means and what passes until the engine has it."""
    assert len(runs) == 4
    for run in runs.values():
        assert len(run.requests) == 300
        assert run.requests[0].blocks
        assert set(bench.published(run)) == set(bench.METRICS)
    assert runs["RTX4090/Llama-3.1-8B"].measured["TTFT"].mean() == pytest.approx(65.4845, rel=1e-4)
    assert runs["RTX4090/Llama-3.1-8B"].measured["TPOT"].mean() == pytest.approx(0.0324, rel=2e-3)
    assert bench.cataloged(runs["RTX4090/Llama-3.1-8B"]).kv_tokens == 41_408


def test_a_run_is_the_same_twice_and_its_errors_stay(runs):
    """Bounds: the errors as measured, and two points."""
    run = runs["RTXPRO6000/Llama-3.1-8B"]
    on = bench.described(run)
    first, second = bench.simulated(run, on), bench.simulated(run, on)
    for metric, bound in zip(bench.METRICS, (0.155, 0.065, 0.09), strict=True):
        assert first[metric].tolist() == second[metric].tolist()
        off = abs(first[metric].mean() / run.measured[metric].mean() - 1)
        assert off <= bound, metric
    fitted = bench.simulated(run, bench.calibrated(run))
    rest = slice(bench.SEEN, None)
    for metric in bench.METRICS:
        off = abs(fitted[metric][rest].mean() / run.measured[metric][rest].mean() - 1)
        assert off <= 0.032, metric
