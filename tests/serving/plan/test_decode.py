"""Steps of a model on its devices: one law of time, for a bound and for what was fitted."""

from dataclasses import replace

import pytest

from ridgeline.catalog.accelerators import accelerator
from ridgeline.catalog.models import Model, model, models
from ridgeline.errors import CatalogError, SpecError
from ridgeline.platform.plan import topics
from ridgeline.quantity import Quantity, given
from ridgeline.serving.plan.decode import ENGINES, ROOFLINE, Decode
from ridgeline.serving.plan.steps import shape_of, step_time
from ridgeline.topics import TOPICS, ask

topics()
CONTEXTS = (512, 8192, 100_000)
#: Topics whose answer is a time or a rate of a step.
TIMED = {
    "throughput-knee": "batch_step_s",
    "users-per-node": "users_by_bandwidth",
    "moe-fit": "step_s",
    "long-context": "step_s",
    "prefill-decode-split": "decode_step_s",
    "adapters": "mixed_step_s",
    "quantization-method": "step_s",
    "step-time": "tpot_s",
}


def node(name: str = "llama-3.1-70b", engine: str = ROOFLINE, **more: object) -> Decode:
    return Decode(model(name), accelerator("h100-sxm"), given(8, "GPUs"), engine=engine, **more)


def tokens(value: float) -> Quantity:
    return given(value, "tokens")


def decoders() -> list[Model]:
    def decodes(one: Model) -> bool:
        try:
            Decode(one, accelerator("h100-sxm"), given(8))
        except SpecError:
            return False
        return True

    return [one for one in models() if decodes(one)]


@pytest.mark.parametrize("one", decoders(), ids=lambda one: one.id)
@pytest.mark.parametrize("context", CONTEXTS)
def test_the_shape_counts_the_cache_and_the_weights_that_the_model_counts(one: Model, context: int):
    held = Decode(one, accelerator("h100-sxm"), given(8))
    steps = replace(held.steps, shape=shape_of(one, held.accelerator, given(8), "bf16", "bf16"))
    work = steps.work(tokens(16), tokens(16 * context))
    exact = held.work(given(16), tokens(context))
    assert work.cached_bytes.value == pytest.approx(exact.cached_bytes.value)
    assert work.read_bytes.value == pytest.approx(exact.read_bytes.value)
    assert work.flop.value == pytest.approx(exact.flop.value)


@pytest.mark.parametrize("name", ["llama-3.1-70b", "deepseek-v3"])
def test_under_the_roofline_a_step_is_the_longer_of_all_reads_and_all_arithmetic(name: str):
    held, batch, context = node(name), given(64), tokens(4096)
    reads = held.read_bytes(batch).value + 64 * held.sequence_bytes(context).value
    work = 64 * held.sequence_flop(context).value
    peak, bandwidth = 8 * 989.5e12, 8 * 3.35e12
    expected = max(reads / bandwidth, work / peak)
    assert held.step_s(batch, context).value == pytest.approx(expected, rel=1e-3)


def test_a_fitted_step_is_that_of_the_step_time_model():
    held = node(engine="vllm")
    steps = step_time(held.model, held.accelerator, tensor_parallel=given(8, "GPUs"), engine="vllm")
    expected = steps.decode_s(tokens(32), tokens(32 * 2048))
    assert held.step_s(given(32), tokens(2048)).value == pytest.approx(expected.value)
    assert held.prefill_s(tokens(2048)).value == pytest.approx(steps.prefill_s(tokens(2048)).value)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("batch", [1, 64, 1000])
def test_both_sides_make_the_step(engine: str, batch: int):
    held, context = node(engine=engine), tokens(2048)
    sides = held.sides(context)
    added = 0.0 if sides.added_s is None else sides.added_s.value
    reads = added + sides.weights_s.value + batch * sides.reads_each_s.value
    arithmetic = added + batch * sides.arithmetic_each_s.value
    expected = max(reads, arithmetic)
    assert held.step_s(given(batch), context).value == pytest.approx(expected)


@pytest.mark.parametrize("engine", ENGINES)
def test_the_largest_batch_within_a_time_is_within_it_and_one_more_is_not(engine: str):
    held, limit, context = node(engine=engine), given(40, "ms"), tokens(4096)
    fit = min(
        held.batch_by_reads(limit, context).value, held.batch_by_arithmetic(limit, context).value
    )
    assert fit > 1
    assert held.step_s(given(fit), context).value <= limit.value
    assert held.step_s(given(fit + 1), context).value > limit.value


@pytest.mark.parametrize("engine", ENGINES)
def test_what_can_be_read_and_computed_in_a_time_takes_that_time(engine: str):
    held, limit = node(engine=engine), given(60, "ms")
    cached = held.readable_bytes(limit, given(8))
    work = replace(held.work(given(8), tokens(1)), cached_bytes=cached)
    assert held.spent_s(work).value == pytest.approx(limit.value)
    flop, each = held.affordable_flop(limit), held.prefill_flop_per_token()
    prompt = flop.value / each.value
    alone = held.prefill_s(tokens(prompt), given(0, "FLOP"))
    assert alone.value == pytest.approx(limit.value)


@pytest.mark.parametrize("name", ["llama-3.1-70b", "llama-3.1-8b", "deepseek-v3"])
@pytest.mark.parametrize("batch", [1, 64, 1000])
def test_no_fitted_step_of_vllm_is_shorter_than_the_bound(name: str, batch: int):
    bound, fitted = (
        node(name, engine).step_s(given(batch), tokens(2048)) for engine in ("roofline", "vllm")
    )
    assert fitted.value > bound.value


def test_a_fit_is_not_stretched_over_domains():
    far = replace(node(engine="vllm"), devices=given(16, "GPUs"))
    assert far.sequence_bytes(tokens(1)).value > 0  # what takes no time needs no fit
    with pytest.raises(SpecError) as caught:
        far.step_s(given(1), tokens(1))
    assert caught.value.where == "engine"
    assert replace(far, engine=ROOFLINE).step_s(given(1), tokens(1)).value > 0


def test_a_bound_refuses_a_type_without_units_and_an_engine_widens_it():
    with pytest.raises(CatalogError):
        node(dtype="nvfp4").step_s(given(1), tokens(1))
    fitted = node(dtype="nvfp4", engine="vllm")
    assert fitted.peak_flop_per_s.value == node().peak_flop_per_s.value
    assert fitted.step_s(given(1), tokens(1)).value > 0


@pytest.mark.parametrize("name", TIMED)
def test_every_topic_of_a_step_takes_an_engine_and_says_what_its_times_are(name: str):
    assert TOPICS[name].parameters["engine"].options == ENGINES
    bound, fitted = (ask(name, {"engine": engine}) for engine in (ROOFLINE, "vllm"))
    assert any("half of the" in note for note in fitted.answer.notes)
    assert not any("half of the" in note for note in bound.answer.notes)
    one, other = (asked.find(TIMED[name])[0].value for asked in (bound, fitted))
    assert one != other


@pytest.mark.parametrize("name", [name for name in TIMED if name != "step-time"])
def test_topics_of_bounds_take_the_roofline_unless_an_engine_is_asked_for(name: str):
    assert TOPICS[name].parameters["engine"].default == ROOFLINE
