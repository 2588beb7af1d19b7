"""Stages add up to the step, and their bytes and FLOPs are those of what was run."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_models import write_tiny

from ridgeline.kernels.decoder import Batch
from ridgeline.serving.engine.config import EngineConfig
from ridgeline.serving.engine.loop import Engine
from ridgeline.serving.engine.model_files import open_model
from ridgeline.serving.engine.step_profile import Profiler, Stopwatch, Work, costs


class Clock:
    """Goes on by one second each time it is read."""

    def __init__(self) -> None:
        self.at_s = 0.0

    def __call__(self) -> float:
        self.at_s += 1.0
        return self.at_s


def test_a_stage_is_charged_for_its_own_time_only() -> None:
    watch = Stopwatch(Clock())
    inner = watch.timed("inner", lambda: "said")
    outer = watch.timed("outer", lambda: [inner(), inner()])
    assert outer() == ["said", "said"]
    # The clock is read at 1 (outer), 2-3 and 4-5 (inner), 6 (outer).
    assert watch.seconds == {"inner": 2.0, "outer": 3.0}


def test_a_call_that_fails_is_charged_too_and_its_error_is_left_alone() -> None:
    watch = Stopwatch(Clock())

    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        watch.timed("broken", fail)()
    assert watch.seconds == {"broken": 1.0}


def batch(lens: list[int], contexts: list[int], wanted: int) -> Batch:
    starts = np.cumsum([0, *lens[:-1]]).astype(np.int32)
    return Batch(
        np.zeros(sum(lens), np.int32),
        starts,
        np.array(lens, np.int32),
        np.array(contexts, np.int32),
        np.zeros((len(lens), 1), np.int32),
        np.zeros(wanted, np.int32),
    )


sequences = st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), min_size=1, max_size=5)


@given(sequences)
def test_pairs_are_the_keys_that_each_row_attends_to(drawn: list[tuple[int, int]]) -> None:
    work = Work()
    work.note(batch([new for new, _ in drawn], [new + old for new, old in drawn], len(drawn)))
    assert work.pairs == sum(old + row + 1 for new, old in drawn for row in range(new))
    assert work.rows == sum(new for new, _ in drawn)
    assert work.cached == sum(new + old for new, old in drawn)
    assert (work.steps, work.wanted) == (1, len(drawn))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tiny") / "llama"
    write_tiny(made, "llama")
    return made


def profiler(folder: Path, dtype: str = "fp32") -> Profiler:
    config = EngineConfig(
        folder, dtype=dtype, threads=1, kv_cache_bytes=4_000_000, prefix_caching=False
    )
    return Profiler(Engine(config), open_model(folder).architecture)


def test_decodes_are_profiled_at_their_batch_and_context_and_nothing_else(folder: Path) -> None:
    found = profiler(folder).decodes(batch=3, context=40, steps=5)
    assert (found.work.steps, found.work.rows, found.work.wanted) == (5, 15, 15)
    assert 40 < found.work.cached / found.work.rows < 64
    assert 0 < found.total_s <= found.wall_s


def test_prompts_are_profiled_one_after_the_other(folder: Path) -> None:
    found = profiler(folder).prompts(length=50, count=3)
    assert (found.work.steps, found.work.rows, found.work.wanted) == (3, 150, 3)
    assert found.work.pairs == 3 * 50 * 51 / 2
    assert 0 < found.total_s <= found.wall_s


def test_where_kernels_have_no_clock_the_model_is_one_stage_and_that_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RIDGELINE_KERNELS", "portable")
    found = profiler(folder).decodes(batch=2, context=20, steps=2)
    names = [stage.name for stage in found.stages]
    assert names == ["schedule", "batch build", "model", "sampling", "emit"]
    assert "portable" in found.detail


class Timed:
    """A decoder's clock, as the compiled ones have it."""

    def profile(self) -> dict[str, float]:
        return {"qkv": 1e-9, "quantise": 0.0, "head": 2e-9}


def test_where_kernels_have_a_clock_its_stages_stand_beside_pythons(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = profiler(folder)
    monkeypatch.setattr(made, "_kernel_clock", lambda: Timed().profile)
    found = made.decodes(batch=2, context=20, steps=2)
    by_name = {stage.name: stage for stage in found.stages}
    assert by_name["qkv"].seconds == 1e-9
    assert by_name["qkv"].bytes > 0
    assert "quantise" not in by_name  # nothing was quantised
    assert by_name["model, the rest"].seconds > 0
    assert found.detail == ""
    assert found.total_s <= found.wall_s


def test_products_cost_a_read_of_each_matrix_a_step_and_two_flops_an_element(folder: Path) -> None:
    a = open_model(folder).architecture
    work = Work(steps=2, rows=6, wanted=4, pairs=10, cached=8)
    found = costs(a, "int8", "int8", work)
    out = a.layers * a.heads * a.head_dim * a.hidden
    assert found["out"] == (2 * out, 2 * 6 * out)
    assert found["head"] == (2 * 2 * a.vocab * a.hidden, 2 * 4 * a.vocab * a.hidden)
    kept = 2 * a.layers * a.kv_heads * (a.head_dim + 4)
    assert found["attention"] == (8 * kept, 4 * 10 * a.heads * a.head_dim * a.layers)
