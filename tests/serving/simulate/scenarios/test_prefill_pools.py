"""Prefill and decode on nodes of their own: arithmetic beside simulation."""

import pytest

from ridgeline.serving.fake.timing import machine
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.scenarios.prefill_pools import (
    Mix,
    Node,
    balanced_ratio,
    best,
    crossover,
    splits,
)
from ridgeline.serving.simulate.setup import Engine, Link, Model, Role, Serving
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request

MIX = Mix()
LINK = Link(50e9)  # 400 Gb/s
NODE = Node(machine("llama-3.1-70b", "h100-sxm", tensor_parallel=8, engine="vllm"), LINK)


@pytest.mark.proves("S147")
def test_of_20_nodes_the_best_split_is_one_of_the_two_beside_the_arithmetic():
    ratio = balanced_ratio(NODE, MIX)
    wanted = 20 * ratio / (1 + ratio)
    found = splits(NODE, MIX, 20, range(int(wanted) - 2, int(wanted) + 4))
    assert abs(best(found).prefill - wanted) < 1
    rates = [one.per_s for one in found]
    top = rates.index(max(rates))
    assert rates[: top + 1] == sorted(rates[: top + 1]), "one hill"
    assert rates[top:] == sorted(rates[top:], reverse=True)


@pytest.mark.slow
@pytest.mark.proves("S147")
def test_of_60_nodes_the_arithmetic_is_within_10_percent_of_the_best_split():
    """So many, so that one node more is less than that."""
    ratio = balanced_ratio(NODE, MIX)
    found = splits(NODE, MIX, 60, (30, 34, 35, 36, 37, 38, 39, 40, 45))
    assert ratio == pytest.approx(best(found).ratio, rel=0.10)


@pytest.mark.proves("S147", "S059")
def test_the_load_from_which_apart_is_faster_is_the_formulas():
    """An 8k prompt; a stream gets a token with each prompt that delays it, which is not in it."""
    cross = crossover(NODE, Mix(8192, 512))
    assert cross.simulated_per_s == pytest.approx(cross.formula_per_s, rel=0.10)
    assert cross.simulated_per_s > cross.formula_per_s


def apart(node: Node, prompt: int) -> tuple[float, float]:
    """Times to the first token of one request, together and apart."""
    engine = Engine(node.machine, max_batched_tokens=prompt)
    both = (Model("chat", engine),)
    pools = (
        Model("prefill", engine, serves="chat", role=Role.PREFILL, link=node.link),
        Model("decode", engine, serves="chat", role=Role.DECODE),
    )
    request = [Request(0.0, prompt, 2)]
    first, second = (
        float(simulate(Serving(some), OpenLoop(request, "chat")).ttft_s()[0])
        for some in (both, pools)
    )
    return first, second


@pytest.mark.proves("S059")
def test_an_8k_cache_of_a_70b_takes_53_7_ms_on_its_way():
    together, later = apart(NODE, 8192)
    assert (later - together) * 1e3 == pytest.approx(53.7, rel=0.01)
    assert 8192 * NODE.machine.cache_bytes_per_token / 1e9 == pytest.approx(2.68, rel=0.01)


@pytest.mark.proves("S075")
def test_an_8k_cache_of_deepseek_v3_takes_11_5_ms_on_its_way():
    on = machine("deepseek-v3", "h200-sxm", tensor_parallel=8, dtype="fp8")
    assert on.cache_bytes_per_token == pytest.approx(70_272)
    together, later = apart(Node(on, LINK), 8192)
    assert (later - together) * 1e3 == pytest.approx(11.5, rel=0.01)


@pytest.mark.proves("S075")
def test_both_pools_of_deepseek_v3_are_as_busy_at_the_arithmetics_ratio():
    on = machine("deepseek-v3", "h200-sxm", tensor_parallel=8, dtype="fp8")
    node, mix = Node(on, LINK), Mix(4096, 256, 32)
    wanted = 12 * balanced_ratio(node, mix) / (1 + balanced_ratio(node, mix))
    found = splits(node, mix, 12, range(max(1, int(wanted) - 1), min(12, int(wanted) + 3)))
    assert abs(best(found).prefill - wanted) < 1
