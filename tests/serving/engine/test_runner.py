"""What a step computes does not depend on how the work came to it."""

import itertools
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import write_tiny

from ridgeline.kernels import choose
from ridgeline.serving.engine.cache import Arena
from ridgeline.serving.engine.model import Model
from ridgeline.serving.engine.model_files import open_model
from ridgeline.serving.engine.runner import Rows, Runner, use_threads

TOLERANCE = {"fp32": 1e-4, "bf16": 0.25}
"""Largest difference of logits of up to about 10, where the portable kernels compute: a prompt's
chunks are other products. The compiled ones give the same bits."""


@pytest.fixture(autouse=True, scope="module", params=[None, "portable"])
def kernels(request) -> Iterator[str]:
    """The fastest kernels of this machine, and those that every machine has; with one thread."""
    before = torch.get_num_threads()
    use_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        if request.param:
            patch.setenv("RIDGELINE_KERNELS", request.param)
        yield choose.kernels()
    use_threads(before)


Make = Callable[[str], Runner]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory, kernels: str) -> Make:
    path = write_tiny(tmp_path_factory.mktemp("tiny") / "llama", "llama")
    files = open_model(path)
    models = {d: Model(files.architecture, files.tensors(d), d, cache_dtype=d) for d in TOLERANCE}

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


def same(got: np.ndarray, expected: np.ndarray, dtype: str) -> bool:
    if choose.kernels() != choose.PORTABLE:
        return np.array_equal(got, expected)
    if dtype == "fp32" and not np.array_equal(got.argmax(-1), expected.argmax(-1)):
        return False
    return bool(np.abs(got - expected).max() <= TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@settings(max_examples=25, deadline=None)
@given(length=st.integers(2, 200), cuts=st.sets(st.integers(1, 199)), seed=st.integers(0, 99))
def test_a_prompt_in_chunks_equals_the_whole(make, dtype, length, cuts, seed):
    tokens, table = tokens_of(length, seed), tables_of([length])[0]
    whole = make(dtype).run([Rows(tokens, 0, table, samples=True)], []).copy()
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
    got = together.run(now, []).copy()
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
    got = runner.run(rows, []).copy()
    assert len(got) == 2
    for line, i in enumerate((1, 3)):
        alone = make("fp32").run([Rows(sequences[i], 0, [0, 1, 2], samples=True)], [])
        assert same(got[line : line + 1], alone, "fp32")


def test_a_fork_goes_on_from_its_copied_block_and_leaves_the_parent_alone(make: Make):
    runner, tokens = make("fp32"), tokens_of(20)
    runner.run([Rows(tokens, 0, [5, 6], samples=True)], [])
    child = runner.run([Rows([7], 20, [5, 9], samples=True)], [(6, 9)]).copy()
    parent = runner.run([Rows([8], 20, [5, 6], samples=True)], []).copy()
    for got, token in ((child, 7), (parent, 8)):
        whole = make("fp32").run([Rows([*tokens, token], 0, [0, 1], samples=True)], [])
        assert same(got, whole, "fp32")


def test_copies_run_in_order(make: Make):
    runner = make("fp32")
    runner.run([Rows(tokens_of(16), 0, [3], samples=False)], [])
    runner.run([Rows([1], 0, [20], samples=True)], [(3, 4), (4, 5), (20, 4)])
    assert (runner.arena.cache.keys[:, 5] == runner.arena.cache.keys[:, 3]).all()
    assert runner.arena.cache.keys[:, 5].any()
    assert not runner.arena.cache.keys[:, 4].any()


def test_what_an_earlier_owner_left_in_a_block_does_not_matter(make: Make):
    runner = make("bf16")
    for items in runner.arena.arrays:
        items[:] = 0x7FC0  # NaN
    tokens = tokens_of(21)
    got = runner.run([Rows(tokens, 0, [2, 1], samples=True)], []).copy()
    clean = make("bf16").run([Rows(tokens, 0, [0, 1], samples=True)], [])
    assert np.array_equal(got, clean)


def test_token_ids_may_be_an_array(make: Make):
    tokens = tokens_of(30)
    as_list = make("fp32").run([Rows(tokens, 0, [0, 1], samples=True)], []).copy()
    array = np.array(tokens, np.int64)
    as_array = make("fp32").run([Rows(array, 0, [0, 1], samples=True)], [])
    assert np.array_equal(as_list, as_array)


def test_building_a_batch_of_32_sequences_takes_under_half_a_millisecond(make: Make):
    runner = make("bf16")
    rows = [Rows([5], 255, list(range(16 * (i % 3), 16 * (i % 3) + 16)), True) for i in range(32)]
    taken_s = []
    for _ in range(50):
        began_s = time.perf_counter()
        runner.batch(rows)
        taken_s.append(time.perf_counter() - began_s)
    assert min(taken_s) < 0.5e-3


def test_threads_are_bounded_by_the_machine_and_torch_gets_the_same():
    most = use_threads(0)
    for asked, count in ((1, 1), (0, most), (10_000, most), (1, 1)):
        assert use_threads(asked) == count == torch.get_num_threads()


def test_the_last_rows_of_a_sequence_give_their_logits_in_order(make: Make):
    """What a step with guesses asks for, beside a prompt's chunk and a plain decode."""
    sequences = [tokens_of(20 + i, i) for i in range(3)]
    tables, runner = tables_of([len(tokens) for tokens in sequences]), make("fp32")
    wanted = (3, 0, 1)
    rows = [
        Rows(tokens, 0, table, samples)
        for tokens, table, samples in zip(sequences, tables, wanted, strict=True)
    ]
    got = runner.run(rows, []).copy()
    ends = [(0, 18), (0, 19), (0, 20), (2, 22)]
    assert len(got) == len(ends)
    for line, (i, end) in enumerate(ends):
        alone = make("fp32").run([Rows(sequences[i][:end], 0, [0, 1], samples=1)], [])
        assert same(got[line : line + 1], alone, "fp32")
