import pytest

from ridgeline.catalog.accelerators import accelerator
from ridgeline.catalog.models import model
from ridgeline.errors import CatalogError, SpecError
from ridgeline.serving.fake.timing import Plain, machine
from ridgeline.serving.plan.steps import step_time
from ridgeline.units import unit_of_name


def test_plain_numbers_add_up():
    steps = Plain(fixed_s=0.01, sequence_s=0.001, prefill_tokens_per_s=1000)
    assert steps.step_s(4, 999, 100, 50) == pytest.approx(0.01 + 0.004 + 0.1)
    assert steps.step_s() == 0.01


def test_a_fake_steps_as_long_as_the_plan_says():
    fast = machine("llama-3.1-8b", "h100-sxm").steps
    planned = step_time(model("llama-3.1-8b"), accelerator("h100-sxm"), tensor_parallel=1.0)
    one = step_time(model("llama-3.1-8b"), accelerator("h100-sxm"), tensor_parallel=1.0)
    token = one.shape.one_tokens
    exact = planned.step_s(64 * token, 64_000 * token, 512 * token, 256 * token)
    assert fast.step_s(64, 64_000, 512, 256) == pytest.approx(exact.value, rel=1e-9)
    assert str(exact.unit) == str(unit_of_name("step_s"))


def test_the_cache_is_what_the_weights_leave():
    one = machine("llama-3.1-8b", "h100-sxm")
    assert 300_000 < one.kv_tokens < 500_000  # (0.9 × 80 GB − 16 GB) / 131 kB
    assert machine("llama-3.1-8b", "h100-sxm", tensor_parallel=2).kv_tokens > 2 * one.kv_tokens


def test_weights_that_do_not_fit_are_refused():
    with pytest.raises(SpecError, match="does not fit"):
        machine("llama-3.1-70b", "h100-sxm")


def test_an_unknown_model_is_refused():
    with pytest.raises(CatalogError):
        machine("no-such-model", "h100-sxm")
