"""Regions, groups, roles and loans of a spec, as the simulator's values."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.simulated import serving_of
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.setup import Link, Place, Region, Role, Serving, Spot
from ridgeline.serving.simulate.world import simulate
from ridgeline.spec import parse
from ridgeline.workload import Request

REGIONS = """
regions:
  - {name: eu, away: {us: 80ms}, keeps: [bank]}
  - {name: us, clients: [shop]}
hardware:
  - {name: here, accelerator: h100-sxm, usd_per_gpu_hour: 2.50}
  - {name: there, accelerator: h200-sxm, region: us, spot: {per_hour: 0.5, notice: 30s}}
tenants: [{name: bank}, {name: shop}]
"""
POOLS = """
hardware: [{name: gpus, accelerator: h100-sxm, nodes: 2}]
"""
MODEL = """
models:
  - name: chat
    model: llama-3.1-8b
    on: {on}
    engine: {{kind: vllm}}
    replicas: {{min: {least}, start: 60s, usd_per_hour: {usd}}}
    simulated: {simulated}
"""


def serving(places: str, simulated: str, on: str = "here", least: int = 1, usd: int = 0) -> Serving:
    text = places + MODEL.format(on=on, simulated=simulated, least=least, usd=usd)
    return serving_of(parse(text, name="p"))


def test_a_group_is_a_kind_of_replicas_on_its_own_hardware():
    groups = "{groups: [{name: far, on: there, min: 2, max: 4, tensor_parallel: 2, slots: 9}]}"
    own, far = serving(REGIONS, groups, usd=7).models
    assert own.place == Place("eu", "here")
    assert far.place == Place("us", "there", 2, Spot(0.5, 30.0))
    assert (own.name, own.served, far.name, far.served) == ("chat", "chat", "chat-far", "chat")
    assert (far.replicas, far.slots, far.starts_s) == (2, 9, 60.0)
    assert own.scaling is None
    assert far.scaling is not None
    assert (own.usd_per_hour, far.usd_per_hour) == (7, 0), "its own hardware's price"
    assert far.engine.machine.kv_tokens > own.engine.machine.kv_tokens


def test_regions_say_where_tenants_are_and_what_data_may_leave():
    found = serving(REGIONS, "{}")
    assert found.regions == (Region("eu", {"us": 0.08}), Region("us"))
    assert found.pools == {"here": 8, "there": 8}
    bank, shop = found.tenants
    assert (bank.home, bank.residency) == ("", frozenset({"eu"}))
    assert (shop.home, shop.residency) == ("us", None)


def apart(link: str) -> str:
    """Prompts on a replica of their own, behind a link."""
    groups = "[{name: p, on: gpus, role: prefill}]"
    return f"{{role: decode, groups: {groups}, prefill: {{bandwidth: {link}}}}}"


def test_roles_have_a_link():
    own, prefill = serving(POOLS, apart("400Gb/s, apart_from: 64"), on="gpus").models
    assert (own.role, own.link) == (Role.DECODE, None)
    assert (prefill.role, prefill.link, prefill.apart_tokens) == (Role.PREFILL, Link(50e9), 64)


def test_it_runs_and_the_cache_travels():
    requests = [Request(0.1 * n, 1000, 5) for n in range(10)]
    slow = simulate(serving(POOLS, apart("1Gb/s"), on="gpus"), OpenLoop(requests, "chat"))
    together = simulate(serving(POOLS, "{}", on="gpus"), OpenLoop(requests, "chat"))
    assert slow.ttft_s().mean() > together.ttft_s().mean() + 1.0


@pytest.mark.parametrize(
    ("places", "simulated", "problem"),
    [
        (POOLS, "{groups: [{name: far, on: moon}]}", "'moon' is no `hardware`"),
        (POOLS, "{role: prefill, prefill: {bandwidth: 1Gb/s}}", "none that decodes"),
        (POOLS, "{role: prefill}", "prefill says how caches travel"),
        (POOLS, "{prefill: {bandwidth: 1Gb/s}}", "prefill says how caches travel"),
        (POOLS, "{groups: [{name: a, on: gpus}, {name: a, on: gpus}]}", "two have one name"),
        (POOLS, "{groups: [{name: a, on: gpus, min: 16}]}", "17 devices, and there are 16"),
        (POOLS, "{groups: [{name: a, on: gpus, min: 2, max: 1}]}", "max 1 is less than min 2"),
        (POOLS.replace("nodes: 2", "region: eu"), "{}", "in 'eu', which is no region"),
        ("regions: [{name: eu, away: {us: 1s}}]" + POOLS, "{}", "away from 'us'"),
        ("regions: [{name: eu}, {name: eu}]" + POOLS, "{}", "two regions"),
        ("regions: [{name: eu, keeps: [bank]}]" + POOLS, "{}", "'bank', which is no tenant"),
    ],
)
def test_what_makes_no_sense_is_refused(places, simulated, problem):
    with pytest.raises(SpecError, match=problem):
        simulate(serving(places, simulated, on="gpus"), OpenLoop([], "chat"))
