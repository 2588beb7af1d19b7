"""What a step computes does not depend on how the work came to it."""

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import write_tiny

from ridgeline.serving.engine.cache import Arena
from ridgeline.serving.engine.model import Model
from ridgeline.serving.engine.model_files import open_model
from ridgeline.serving.engine.runner import Rows, Runner, use_threads

TOLERANCE = {"fp32": 1e-4, "bf16": 0.25}
"""Largest difference of logits of up to about 10. Attention and small steps are the same bit for
bit in any batch (test_paged, test_cpu); matrix products may take another kernel for one row."""


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Tiny products gain nothing from threads, and on a busy machine they wait for each other."""
    before = torch.get_num_threads()
    use_threads(1)
    yield
    use_threads(before)


Make = Callable[[str], Runner]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    path = write_tiny(tmp_path_factory.mktemp("tiny") / "llama", "llama")
    files = open_model(path)
    models = {d: Model(files.architecture, files.tensors(d), d) for d in TOLERANCE}

    def runner(dtype: str) -> Runner:
        return Runner(models[dtype], Arena.of_blocks(files.architecture, dtype, 64, 16))

    return runner


def tokens_of(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 300, length).tolist()


def tables_of(lengths: list[int]) -> list[list[int]]:
    """Blocks for each sequence, in no order."""
    ends = np.cumsum([-(-length // 16) for length in lengths])
    order = np.random.default_rng(1).permutation(ends[-1])
    return [part.tolist() for part in np.split(order, ends[:-1])]


def same(got: torch.Tensor, expected: torch.Tensor, dtype: str) -> bool:
    if dtype == "fp32" and not torch.equal(got.argmax(-1), expected.argmax(-1)):
        return False
    return bool((got - expected).abs().max() <= TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@settings(max_examples=25, deadline=None)
@given(length=st.integers(2, 200), cuts=st.sets(st.integers(1, 199)), seed=st.integers(0, 99))
def test_a_prompt_in_chunks_equals_the_whole(make, dtype, length, cuts, seed):
    tokens, table = tokens_of(length, seed), tables_of([length])[0]
    whole = make(dtype).run([Rows(tokens, 0, table, samples=True)], [])
    runner = make(dtype)
    edges = [0, *sorted(cut for cut in cuts if cut < length), length]
    for begin, end in itertools.pairwise(edges):
        chunk = Rows(tokens[begin:end], begin, table, samples=end == length)
        got = runner.run([chunk], [])
    assert same(got, whole, dtype)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@settings(max_examples=25, deadline=None)
@given(
    shapes=st.lists(st.tuples(st.integers(0, 60), st.integers(1, 60)), min_size=2, max_size=6),
    seed=st.integers(0, 99),
)
def test_a_mixed_batch_equals_each_sequence_alone(make, dtype, shapes, seed):
    """Each sequence has `done` tokens in the cache and `new` ones in the step."""
    sequences = [tokens_of(done + new, seed + i) for i, (done, new) in enumerate(shapes)]
    tables = tables_of([len(tokens) for tokens in sequences])
    before = [
        Rows(tokens[:done], 0, table, samples=False)
        for (done, _), tokens, table in zip(shapes, sequences, tables, strict=True)
        if done
    ]
    now = [
        Rows(tokens[done:], done, table, samples=True)
        for (done, _), tokens, table in zip(shapes, sequences, tables, strict=True)
    ]
    together = make(dtype)
    if before:
        together.run(before, [])
    got = together.run(now, [])
    for i, tokens in enumerate(sequences):
        table = list(range(len(tables[i])))
        alone = make(dtype).run([Rows(tokens, 0, table, samples=True)], [])
        assert same(got[i : i + 1], alone, dtype)


def test_logits_come_in_the_order_of_the_rows_that_sample(make: Make):
    runner, sequences = make("fp32"), [tokens_of(20 + i, i) for i in range(4)]
    tables = tables_of([len(tokens) for tokens in sequences])
    rows = [
        Rows(tokens, 0, table, samples=i % 2 == 1)
        for i, (tokens, table) in enumerate(zip(sequences, tables, strict=True))
    ]
    got = runner.run(rows, [])
    assert len(got) == 2
    for line, i in enumerate((1, 3)):
        alone = make("fp32").run([Rows(sequences[i], 0, [0, 1, 2], samples=True)], [])
        assert same(got[line : line + 1], alone, "fp32")


def test_a_fork_goes_on_from_its_copied_block_and_leaves_the_parent_alone(make: Make):
    runner, tokens = make("fp32"), tokens_of(20)
    runner.run([Rows(tokens, 0, [5, 6], samples=True)], [])
    child = runner.run([Rows([7], 20, [5, 9], samples=True)], [(6, 9)])
    parent = runner.run([Rows([8], 20, [5, 6], samples=True)], [])
    for got, token in ((child, 7), (parent, 8)):
        whole = make("fp32").run([Rows([*tokens, token], 0, [0, 1], samples=True)], [])
        assert same(got, whole, "fp32")


def test_copies_run_in_order(make: Make):
    runner = make("fp32")
    runner.run([Rows(tokens_of(16), 0, [3], samples=False)], [])
    runner.run([Rows([1], 0, [20], samples=True)], [(3, 4), (4, 5), (20, 4)])
    assert (runner.arena.keys[:, 5] == runner.arena.keys[:, 3]).all()
    assert runner.arena.keys[:, 5].any()
    assert not runner.arena.keys[:, 4].any()


def test_what_an_earlier_owner_left_in_a_block_does_not_matter(make: Make):
    runner = make("bf16")
    for items in (runner.arena.keys, runner.arena.values):
        items[:] = 0x7FC0  # NaN
    tokens = tokens_of(21)
    got = runner.run([Rows(tokens, 0, [2, 1], samples=True)], [])
    clean = make("bf16").run([Rows(tokens, 0, [0, 1], samples=True)], [])
    assert torch.equal(got, clean)


def test_token_ids_may_be_an_array(make: Make):
    tokens = tokens_of(30)
    as_list = make("fp32").run([Rows(tokens, 0, [0, 1], samples=True)], [])
    array = np.array(tokens, np.int64)
    as_array = make("fp32").run([Rows(array, 0, [0, 1], samples=True)], [])
    assert torch.equal(as_list, as_array)


def test_building_a_batch_of_32_sequences_takes_under_half_a_millisecond(make: Make):
    runner = make("bf16")
    rows = [Rows([5], 255, list(range(16 * (i % 3), 16 * (i % 3) + 16)), True) for i in range(32)]
    taken_s = []
    for _ in range(50):
        began_s = time.perf_counter()
        runner.batch(rows)
        taken_s.append(time.perf_counter() - began_s)
    assert min(taken_s) < 0.5e-3


def test_threads_are_bounded_by_the_machine_and_shared():
    """In a fresh process, since numba changes OpenMP's number when it starts its threads."""
    script = """
import numba, torch
from ridgeline.serving.engine.runner import use_threads
print([(use_threads(n), torch.get_num_threads(), numba.get_num_threads()) for n in (1, 0, 99, 1)])
"""
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "NUMBA_NUM_THREADS": "2"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[(1, 1, 1), (2, 2, 2), (2, 2, 2), (1, 1, 1)]"
