"""A spec as the simulator's values: what is not modelled is an error."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.simulated import serving_of
from ridgeline.spec import parse

SPEC = """
hardware: [{{name: gpus, accelerator: h100-sxm, usd_per_gpu_hour: 2.50}}]
models:
  - name: chat
    model: llama-3.1-8b
    on: gpus
    engine: {engine}
    replicas: {replicas}
tenants: [{{name: search, class: interactive, weight: 2, limits: {{concurrent: 3}}{budget}}}]
"""


def serving(engine="{kind: vllm}", replicas="{min: 1}", budget=""):
    return serving_of(parse(SPEC.format(engine=engine, replicas=replicas, budget=budget), name="p"))


def test_what_a_spec_says_is_what_is_simulated():
    args = '["--max-num-batched-tokens=4096", "--block-size", "32", "--no-enable-prefix-caching"]'
    found = serving(f"{{kind: vllm, tensor_parallel: 2, max_seqs: 100, args: {args}}}")
    (model,) = found.models
    assert (model.engine.max_batched_tokens, model.engine.block_tokens) == (4096, 32)
    assert not model.engine.prefix_caching
    assert (model.engine.max_seqs, model.slots, model.replicas) == (100, 100, 1)
    assert float(model.usd_per_hour) == 5.0
    (tenant,) = found.tenants
    assert (tenant.priority_class, tenant.weight) == ("interactive", 2.0)
    assert tenant.limits.concurrent == 3


def test_vllm_decides_ahead_unless_it_is_told_not_to():
    assert serving().models[0].engine.ahead
    assert not serving("{kind: vllm, args: [--no-async-scheduling]}").models[0].engine.ahead
    assert not serving("{kind: sglang}").models[0].engine.ahead


def test_replicas_that_scale_need_the_time_of_a_start():
    with pytest.raises(SpecError, match="start"):
        serving(replicas="{min: 1, max: 4}")
    (model,) = serving(replicas="{min: 1, max: 4, start: 90s}").models
    assert model.scaling is not None
    assert model.starts_s == 90.0


def test_a_schedule_is_a_floor_at_its_hours():
    cron = '[{at: "0 8 * * *", min: 3}, {at: "0 20 * * *", min: 0}]'
    (model,) = serving(replicas=f"{{min: 0, max: 4, start: 9s, scale: {{cron: {cron}}}}}").models
    assert [model.scaling.floor(hour * 3600.0) for hour in (7, 9, 21)] == [0, 3, 0]


@pytest.mark.parametrize(
    ("engine", "field"),
    [
        ("{kind: vllm, args: [--enforce-eager]}", "--enforce-eager"),
        ("{kind: sglang, args: [--no-async-scheduling]}", "--no-async-scheduling"),
        ('{kind: fake, accelerator: h100-sxm, faults: ["cut,after=5"]}', "faults"),
    ],
)
def test_what_is_not_modelled_is_an_error(engine, field):
    with pytest.raises(SpecError, match=field):
        serving(engine)


def test_a_smaller_share_of_memory_and_smaller_cached_numbers_change_the_room_for_a_cache():
    tokens = {
        name: serving(f"{{kind: vllm{told}}}").models[0].engine.machine.kv_tokens
        for name, told in (
            ("as it is", ""),
            ("half", ", memory_share: 0.5"),
            ("fp8", ", kv_dtype: fp8"),
        )
    }
    assert tokens["half"] < 0.6 * tokens["as it is"]
    assert tokens["fp8"] == pytest.approx(2 * tokens["as it is"], rel=0.01)


def test_a_budget_is_a_limit():
    (tenant,) = serving(budget=", budget: {usd: 5}").tenants
    assert tenant.limits.budget.usd == 5


def test_a_model_on_nothing_has_no_times():
    with pytest.raises(SpecError, match="hardware"):
        serving_of(parse("models: [{name: a, model: smollm2-135m-instruct}]", name="p"))


def test_our_engines_cache_and_types_are_as_told():
    def tokens(told: str) -> int:
        return serving(f"{{kind: ridgeline{told}}}").models[0].engine.machine.kv_tokens

    assert tokens("") == 1_000_000_000 // 131_072  # 8 KV heads of 128, 32 layers, two, bf16
    assert tokens(", kv_cache: 2GB") == 2_000_000_000 // 131_072
    assert tokens(", kv_cache_dtype: int8") == pytest.approx(2 * tokens(""), abs=1)
    assert tokens(", kv_cache: 2TB") < 1_000_000, "no more than there is"
    slow, fast = (
        serving(f"{{kind: ridgeline, dtype: {dtype}}}")
        .models[0]
        .engine.machine.steps.step_s(1, 500)
        for dtype in ("bf16", "int8")
    )
    assert fast < slow


@pytest.mark.parametrize("told", ["threads: 2", "kv_cache: 1kB"])
def test_what_our_engine_cannot_be_simulated_with_is_an_error(told):
    with pytest.raises(SpecError, match=told.split(":")[0]):
        serving(f"{{kind: ridgeline, {told}}}")
