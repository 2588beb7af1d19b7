"""S085 on real servers: `ridgeline serve` with the default model, and the same with one fault."""

import asyncio
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from real_server import NAME, real_server
from ridgeline.catalog.packaged import DEFAULT_MODEL, PACKAGED
from ridgeline.serving.evaluate.evaluate import evaluate, make_reference
from ridgeline.serving.policy.answers import Category
from ridgeline.serving.policy.config_faults import CRITERIA, EXACT

pytest.importorskip("torch", reason="the engine needs it")

CONTEXT = 2048
SIZE = ("--max-model-len", str(CONTEXT))
WITHOUT_SYSTEM = ("messages[0]['role'] != 'system'", "messages[0]['role'] == 'nobody'")
WITHOUT_TURN = ("{% if add_generation_prompt %}", "{% if add_generation_nobody %}")


@pytest.fixture(scope="module")
def model():
    packaged = PACKAGED[DEFAULT_MODEL]
    if packaged.path() is None:
        pytest.skip(f"the default model is not installed: {packaged.install}")
    return DEFAULT_MODEL


@pytest.fixture(scope="module")
def good(model) -> Iterator[str]:
    with real_server(model, *SIZE) as url:
        yield url


@pytest.fixture(scope="module")
def reference(good):
    return asyncio.run(make_reference(good, NAME))


def compared(reference, url, criteria=CRITERIA):
    return asyncio.run(evaluate(reference, url, NAME, criteria=criteria))


def failed(result):
    return {one.category for one in result.findings if not one.passed}


def kinds(result):
    return [fault.kind for fault in result.faults]


@contextmanager
def load(url: str, streams: int = 6) -> Iterator[list[int]]:
    """Others generate all the while; the list has what each got."""
    ends = threading.Event()
    got: list[int] = []

    def ask(number: int) -> None:
        while not ends.is_set():
            text = f'{{"model": "{NAME}", "prompt": "Load {number}.", "max_tokens": 60}}'
            request = urllib.request.Request(
                f"{url}/v1/completions", text.encode(), {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request, timeout=120) as answer:
                got.append(len(answer.read()))

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(streams)]
    for thread in threads:
        thread.start()
    try:
        yield got
    finally:
        ends.set()
        for thread in threads:
            thread.join()


def test_the_unchanged_server_passes_and_nothing_differs(reference, good):
    result = compared(reference, good)
    assert result.passed, result.reason
    assert {one.measured.difference for one in result.findings if one.measured} == {0}


@pytest.mark.slow
def test_it_passes_three_times_out_of_three_and_under_load(reference, good):
    assert [compared(reference, good).passed for _ in range(3)] == [True] * 3
    with load(good) as got:
        assert [compared(reference, good).passed for _ in range(3)] == [True] * 3
    assert got


def retold(path, folder, old: str, new: str):
    """A copy of a GGUF with another chat template of the same length."""
    assert len(old) == len(new)
    data = path.read_bytes()
    assert data.count(old.encode()) == 1
    copy = folder / "retold.gguf"
    copy.write_bytes(data.replace(old.encode(), new.encode()))
    return copy


@pytest.mark.slow
@pytest.mark.proves("S085")
@pytest.mark.parametrize("change", [WITHOUT_SYSTEM, WITHOUT_TURN])
def test_detects_a_wrong_template(reference, model, change, tmp_path):
    copy = retold(PACKAGED[model].path(), tmp_path, *change)
    with real_server(str(copy), *SIZE, cache=tmp_path / "cache") as url:
        result = compared(reference, url)
    assert kinds(result) == ["template"], result.reason
    assert Category.CHAT in failed(result)
    assert Category.CHARACTERS not in failed(result)


def worst(result):
    return max(one.measured.difference for one in result.findings if one.measured)


@pytest.mark.proves("S085")
@pytest.mark.parametrize(
    ("option", "dtype", "least", "most"),
    [
        ("--dtype", "int8", 0.06, 0.2),
        pytest.param("--kv-cache-dtype", "int8", 0.03, 0.06, marks=pytest.mark.slow),
    ],
)
def test_detects_a_wrong_dtype(reference, model, option, dtype, least, most):
    with real_server(model, *SIZE, option, dtype) as url:
        result = compared(reference, url)
    assert kinds(result) == ["dtype"], result.reason
    assert least < worst(result) < most


@pytest.mark.slow
def test_fp32_for_bf16_is_rounding_and_found_where_nothing_may_differ(reference, model):
    with real_server(model, *SIZE, "--dtype", "fp32") as url:
        result = compared(reference, url)
        assert result.passed, result.reason
        assert 0 < worst(result) < 0.02
        assert kinds(compared(reference, url, EXACT)) == ["dtype"]


@pytest.mark.slow
@pytest.mark.proves("S085")
def test_detects_a_context_that_refuses_what_was_answered(reference, model):
    with real_server(model, "--max-model-len", str(CONTEXT // 2)) as url:
        result = compared(reference, url)
    assert kinds(result) == ["context"], result.reason
    assert failed(result) == {Category.LONG}


@pytest.mark.slow
@pytest.mark.proves("S085")
def test_detects_a_context_that_is_truncated_without_a_word(reference, model):
    with real_server(model, *SIZE, fault="cut=1000") as url:
        result = compared(reference, url)
    assert kinds(result) == ["context"], result.reason
    assert failed(result) == {Category.LONG}
    assert "1000 were read" in result.reason


@pytest.mark.slow
@pytest.mark.proves("S085")
@pytest.mark.parametrize("default", ["temperature=0", "temperature=0.9", "top_p=0.9"])
def test_detects_another_sampling_default(reference, model, default):
    with real_server(model, *SIZE, fault=default) as url:
        result = compared(reference, url)
    assert kinds(result) == ["sampling defaults"], result.reason
    assert failed(result) == {Category.DEFAULTS}
