"""What a spec says for simulations only: every key changes something, or is refused."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.simulated import serving_of
from ridgeline.serving.simulate.clients import OpenLoop
from ridgeline.serving.simulate.world import simulate
from ridgeline.spec import parse
from ridgeline.workload import Request

SPEC = """
hardware: [{{name: gpus, accelerator: h100-sxm}}]
models:
  - name: chat
    model: llama-3.1-8b
    on: gpus
    engine: {engine}
    simulated: {simulated}
tenants: [{{name: search}}]
"""
GUESSES = "{acceptance: 0.7, draft_tokens: 4, rule: always}"
TIERS = "tiers: [{name: host, size: 64GB, bandwidth: 50GB/s, latency: 1ms}]"
ADAPTERS = "{shares: {sql: 0.5, code: 0.3}, slots: 2, size: 160MB}"


def serving(simulated, engine="{kind: vllm}"):
    return serving_of(parse(SPEC.format(engine=engine, simulated=simulated), name="p"))


def engine_of(simulated, engine="{kind: vllm}"):
    return serving(simulated, engine).models[0].engine


def guessing(was="", now=""):
    return f"{{speculation: {GUESSES.replace(was, now)}}}"


def digest(simulated):
    # Prompts of a whole cache each, so that blocks leave it.
    size = serving("{}").models[0].engine.machine.kv_tokens * 2 // 3
    requests = [
        Request(50 + at * 30.0, size, 40, tuple(range(at % 2 * 10**6, at % 2 * 10**6 + size // 16)))
        for at in range(4)
    ]
    requests += [Request(at * 0.05, 20, 40, tenant="search") for at in range(40)]
    requests.sort(key=lambda one: one.at_s)
    return simulate(serving(simulated), OpenLoop(requests, "chat", block_tokens=16)).digest


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("{}", guessing()),
        (guessing(), guessing("acceptance: 0.7", "acceptance: 0.5")),
        (guessing(), guessing("acceptance: 0.7", "acceptance: {default: 0.7, search: 0.2}")),
        (guessing(), guessing("draft_tokens: 4", "draft_tokens: 3")),
        (guessing(), guessing("rule: always", "rule: measured")),
        (guessing(), guessing("rule: always", "rule: always, off_above: 1")),
        (guessing(), guessing("rule: always", "rule: always, draft_cost: 0.1")),
        (guessing(), guessing("rule: always", "rule: always, expected: 0.95")),
        ("{}", f"{{{TIERS}}}"),
        (f"{{{TIERS}}}", f"{{{TIERS}, reload: recompute}}"),
        (f"{{{TIERS}}}", f"{{{TIERS.replace('50GB', '20GB')}}}"),
        (f"{{{TIERS}}}", f"{{{TIERS.replace('64GB', '1GB')}}}"),
        (f"{{{TIERS}}}", f"{{{TIERS.replace('1ms', '9ms')}}}"),
        (f"{{{TIERS}}}", f"{{{TIERS.replace('host', 'disk')}}}"),
        ("{}", f"{{adapters: {ADAPTERS}}}"),
        (f"{{adapters: {ADAPTERS}}}", f"{{adapters: {ADAPTERS.replace('0.3', '0.1')}}}"),
        (f"{{adapters: {ADAPTERS}}}", f"{{adapters: {ADAPTERS.replace('2,', '1,')}}}"),
        (f"{{adapters: {ADAPTERS}}}", f"{{adapters: {ADAPTERS.replace('160MB', '320MB')}}}"),
        (f"{{adapters: {ADAPTERS}}}", f"{{adapters: {ADAPTERS[:-1]}, bandwidth: 1GB/s}}}}"),
    ],
)  # fmt: skip
def test_every_key_changes_the_run(one, other):
    assert digest(one) != digest(other)


def test_our_own_engine_guesses_as_many_as_it_says():
    found = engine_of("{speculation: {acceptance: 0.7}}", "{speculation: ngram, draft_tokens: 6}")
    assert (found.guessing.drafts, found.guessing.rule) == (6, "measured")


def test_slots_of_adapters_take_room_from_the_cache():
    """160 MB each, 131,072 bytes a token."""
    whole, less = engine_of("{}"), engine_of(f"{{adapters: {ADAPTERS}}}")
    gone = whole.machine.kv_tokens - less.machine.kv_tokens
    assert gone == pytest.approx(2 * 160e6 / 131_072, abs=1)
    assert less.adapters.load_s == pytest.approx(160e6 / 20e9)
    assert 0 < less.adapters.read_s < 160e6 / 1e12


PLAIN = "{kind: fake}"


@pytest.mark.parametrize(
    ("simulated", "engine", "field"),
    [
        ("{}", "{speculation: ngram}", "both or neither"),
        ("{speculation: {acceptance: 0.7}}", "{}", "both or neither"),
        (f"{{speculation: {GUESSES}}}", "{speculation: ngram}", "draft_tokens"),
        ("{speculation: {acceptance: 0.7}}", "{kind: vllm}", "draft_tokens"),
        (guessing("0.7", "{nobody: 0.7}"), "{kind: vllm}", "nobody"),
        (guessing("0.7", "{search: 0.7}"), "{kind: vllm}", "all others"),
        (guessing("rule: always", "expected: 0.1"), "{kind: vllm}", "expected"),
        (guessing("0.7", "1.7"), "{kind: vllm}", "acceptance"),
        (guessing("rule: always", "off_above: 3"), "{kind: vllm}", "off_above"),
        (f"{{{TIERS}}}", "{kind: vllm, args: [--no-enable-prefix-caching]}", "tiers"),
        (f"{{{TIERS.replace('GB/s', 'GB')}}}", "{kind: vllm}", "bandwidth"),
        ("{reload: load}", "{kind: vllm}", "reload"),
        (f"{{{TIERS[:-1]}, {TIERS.partition('[')[2]}}}", "{kind: vllm}", "two have one name"),
        (f"{{adapters: {ADAPTERS.replace('0.3', '0.6')}}}", "{kind: vllm}", "more than 1"),
        (f"{{adapters: {ADAPTERS.replace('160MB', '160GB')}}}", "{kind: vllm}", "no room"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_an_error(simulated, engine, field):
    with pytest.raises(SpecError, match=field):
        serving(simulated, engine)


@pytest.mark.parametrize("told", [f"{{{TIERS}}}", f"{{adapters: {ADAPTERS}}}"])
def test_plain_numbers_have_no_sizes(told):
    text = f"models: [{{name: a, engine: {{kind: fake}}, simulated: {told}}}]"
    with pytest.raises(SpecError, match="plain numbers"):
        serving_of(parse(text, name="p"))


def test_a_tenant_or_an_adapter_may_have_its_own_acceptance():
    told = "{speculation: {acceptance: {sql: 0.9, search: 0.5, default: 0.7}, draft_tokens: 4}"
    guessing = engine_of(f"{told}, adapters: {ADAPTERS}}}").guessing
    chances = [guessing.chance(*names) for names in (("sql", "search"), ("", "search"), ("", ""))]
    assert chances == [0.9, 0.5, 0.7]
