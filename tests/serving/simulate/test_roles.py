"""Prefill and decode on replicas of their own, in whole simulations."""

from dataclasses import replace

import numpy as np
import pytest
from worlds import engine, model

from ridgeline.errors import SpecError
from ridgeline.serving.fake.timing import Machine, machine
from ridgeline.serving.simulate.asked import End
from ridgeline.serving.simulate.clients import ClosedLoop, OpenLoop
from ridgeline.serving.simulate.outcome import Outcome
from ridgeline.serving.simulate.setup import Engine, Fault, Link, Model, Role, Serving, Trouble
from ridgeline.serving.simulate.transfer import Egress
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import Request

ON = machine("llama-3.1-8b", "h100-sxm")
LINK = Link(50e9, 0.001)


def pools(prefill: int = 1, decode: int = 1, on: Machine = ON, **changes) -> tuple[Model, ...]:
    runs = Engine(on, max_batched_tokens=8192)
    first = Model("prefill", runs, prefill, serves="chat", role=Role.PREFILL, link=LINK)
    second = Model("decode", runs, decode, serves="chat", role=Role.DECODE)
    return replace(first, **changes), second


def where(outcome: Outcome) -> list[str]:
    order = np.argsort(outcome.columns["number"])
    return [outcome.names[number] for number in outcome.columns["replica"][order]]


def test_a_first_token_takes_the_prompt_and_the_way_of_its_cache():
    request = [Request(0.0, 4096, 50)]
    apart = simulate(Serving(pools()), OpenLoop(request, "chat"))
    together = simulate(
        Serving((Model("chat", Engine(ON, max_batched_tokens=8192)),)), OpenLoop(request, "chat")
    )
    way_s = 4096 * 131_072 / 50e9 + 0.001  # 8 KV heads of 128, 32 layers, keys and values, bf16
    assert apart.ttft_s()[0] == pytest.approx(together.ttft_s()[0] + way_s, rel=1e-6)
    assert apart.tpot_s()[0] == pytest.approx(together.tpot_s()[0], rel=1e-3)
    assert where(apart) == ["decode-0"]


def test_prompts_do_not_stretch_streams_any_more():
    requests = [Request(0.0, 500, 400)] * 8 + [Request(1.0 + n / 8, 8000, 1) for n in range(8)]
    stretched, apart = (
        simulate(Serving(models, gaps=True), OpenLoop(requests, "chat"))
        for models in ((Model("chat", Engine(ON, max_batched_tokens=8192)),), pools())
    )
    assert apart.gap_s().max() < stretched.gap_s().max() / 10


def test_caches_go_over_a_link_one_after_the_other():
    egress = Egress(Link(1e9, 0.5), 1e6)
    assert egress.send(0, 1000) == 1_500_000_000
    assert egress.send(0, 1000) == 2_500_000_000
    assert egress.send(10_000_000_000, 1000) == 11_500_000_000
    assert Egress(None, 1e6).send(7, 1000) == 7


def test_of_one_token_nothing_is_decoded_and_a_short_prompt_is_not_sent():
    outcome = simulate(Serving(pools()), OpenLoop([Request(0.0, 4096, 1)], "chat"))
    assert where(outcome) == ["prefill-0"]
    short = simulate(
        Serving(pools(apart_tokens=1000)),
        OpenLoop([Request(0.0, 999, 9), Request(5.0, 1000, 9)], "chat"),
    )
    steps = {one.name: one.steps for one in short.replicas}
    assert where(short) == ["decode-0"] * 2
    assert steps["prefill-0"] == 1
    assert steps["decode-0"] == 9 + 8


def test_a_warm_prompt_is_short():
    """Its cache is where it was decoded: only what is new is computed, there."""
    blocks = tuple(range(64))
    requests = [Request(0.0, 1024, 9, blocks), Request(5.0, 1030, 9, blocks)]
    outcome = simulate(
        Serving(pools(apart_tokens=512)), OpenLoop(requests, "chat", block_tokens=16)
    )
    steps = {one.name: one.steps for one in outcome.replicas}
    assert steps["prefill-0"] == 1
    assert sorted(outcome.columns["cached_tokens"].tolist()) == [0, 1024]


def test_without_one_that_prefills_those_that_decode_do_it_all():
    fault = Fault(0.0, Trouble.DIES, "prefill")
    dead = pools(start_s={"start": 1e6})
    outcome = simulate(Serving(dead, faults=(fault,)), OpenLoop([Request(1.0, 4096, 9)], "chat"))
    assert outcome.count(End.ANSWERED) == 1


def test_who_loses_its_cache_on_the_way_begins_anew():
    """The replica that was to decode it dies before it is there."""
    slow = pools(decode=2, link=Link(1e9))
    fault = Fault(0.3, Trouble.DIES, "decode")
    serving = Serving(slow, faults=(fault,))
    outcome = simulate(serving, OpenLoop([Request(0.0, 4096, 9)], "chat"))
    assert outcome.count(End.ANSWERED) == 1
    assert where(outcome) == ["decode-1"]
    assert outcome.ttft_s()[0] > 1.0, "two ways of half a second"


def test_a_preempted_one_has_its_cache_no_more():
    """So little room that those who decode push each other out; all are answered in the end."""
    tight = pools(on=replace(ON, kv_tokens=2000))
    requests = [Request(0.01 * n, 400, 400) for n in range(12)]
    outcome = simulate(Serving(tight), ClosedLoop(requests, "chat", 12))
    assert outcome.count(End.ANSWERED) == 12
    assert sum(one.preemptions for one in outcome.replicas if one.model == "decode") > 0


WRONG = [
    ((model(role=Role.PREFILL),), "none that decodes"),
    ((model(link=LINK),), "a link that nothing is sent over"),
]


@pytest.mark.parametrize(("models", "problem"), WRONG)
def test_roles_that_make_no_sense_are_refused(models, problem):
    with pytest.raises(SpecError, match=problem):
        simulate(Serving(models), OpenLoop([], "chat"))


def test_plain_numbers_have_no_bytes_and_take_the_latency():
    assert engine().machine.cache_bytes_per_token == 0
    first = model("prefill", serves="chat", role=Role.PREFILL, link=Link(1e9, 0.2))
    second = model("decode", serves="chat", role=Role.DECODE)
    outcome = simulate(Serving((first, second)), OpenLoop([Request(0.0, 100, 5)], "chat"))
    assert outcome.ttft_s()[0] == pytest.approx(0.015 + 0.2)
