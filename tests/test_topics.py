"""The registry: what a declared parameter takes, what `ask` sets, and what it refuses."""

# ruff: noqa: B008 - parameters are declared where a topic takes them
from collections.abc import Iterator
from typing import Any

import pytest

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.errors import CatalogError, RidgelineError, SpecError, UnitError
from ridgeline.quantity import Number, Provenance, given, replaced
from ridgeline.topics import (
    TOPICS,
    Answer,
    a_model,
    alike,
    amount,
    an_accelerator,
    ask,
    choice,
    count,
    find_topic,
    flag,
    numbers,
    stem,
    topic,
)


@pytest.fixture(autouse=True)
def shop() -> Iterator[None]:
    @topic("shop", subject="test")
    def shop(
        model: Model = a_model("llama-3.1-8b"),
        accelerator: Accelerator = an_accelerator("h100-sxm"),
        context_tokens: Number = amount(
            "8k", "tokens", "Tokens.", least="1", interval=("4k", "16k")
        ),
        gpus: Number = count(8, "Devices.", noun="GPUs", most=64),
        mode: str = choice("bf16", ("bf16", "fp8"), "Mode."),
        deep: bool = flag(False, "Deep."),
        rates: Any = numbers("1 GB/s, 2 GB/s", "GB/s", "Rates."),
    ) -> Answer:
        """What is in the shop."""
        price = given("2 USD", name="shelf-3.price_usd", source="the label")
        total = (price * gpus).named("total_usd")
        longer = (context_tokens * model.layers).named("longer_tokens")
        memory = (accelerator.memory_bytes * gpus).named("all_bytes")
        return Answer("{total}", {"total": total, "longer": longer, "memory": memory})

    yield
    del TOPICS["shop"]


def value(name: str, *given_and_set: Any) -> Any:
    return ask("shop", *given_and_set).answer.values[name].value


def test_defaults_are_used_and_told_to_be_assumed():
    asked = ask("shop")
    assert asked.inputs["context_tokens"].value == 8192
    assert asked.inputs["context_tokens"].provenance is Provenance.ASSUMED
    assert asked.inputs["context_tokens"].interval == (4096, 16384)
    assert asked.inputs["deep"] is False


def test_what_is_given_is_told_to_be_given():
    asked = ask("shop", {"gpus": "4"})
    assert asked.inputs["gpus"].provenance is Provenance.GIVEN
    assert asked.inputs["gpus"].source == "you"


@pytest.mark.parametrize(
    ("name", "written", "typed"),
    [
        ("context_tokens", "16k", 16384),
        ("context", "16k", 16384),
        ("gpus", "2", 2),
        ("deep", "yes", True),
        ("deep", "off", False),
        ("mode", "fp8", "fp8"),
        ("rates", "3 GB/s, 4 GB/s", (3e9, 4e9)),
        ("rates", ["3 GB/s"], (3e9,)),
    ],
)
def test_what_a_person_writes_is_typed(name, written, typed):
    inputs = ask("shop", {name: written}).inputs
    found = inputs.get(name, inputs["context_tokens"])
    bare = tuple(one.value for one in found) if isinstance(found, tuple) else found
    assert getattr(bare, "value", bare) == typed


@pytest.mark.parametrize(
    ("name", "written", "error", "where"),
    [
        ("context_tokens", "0", SpecError, "context"),
        ("context_tokens", "8 GB", UnitError, "context"),
        ("context_tokens", "eight", UnitError, "context"),
        ("gpus", "65", SpecError, "gpus"),
        ("gpus", "0", SpecError, "gpus"),
        ("gpus", "2.5", SpecError, "gpus"),
        ("deep", "perhaps", SpecError, "deep"),
        ("mode", "fp7", SpecError, "mode"),
        ("rates", "1 s", UnitError, "rates"),
        ("model", "nobody", CatalogError, "model"),
        ("accelerator", "abacus", CatalogError, "accelerator"),
        ("depth", "3", SpecError, "shop"),
    ],
)
def test_what_does_not_fit_is_refused_with_where_and_remedy(name, written, error, where):
    with pytest.raises(error) as caught:
        ask("shop", {name: written})
    assert caught.value.where == where
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("key", "written", "expected"),
    [
        ("price_usd", "3 USD", 24),
        ("shelf-3.price_usd", "3 USD", 24),
        ("price", "3 USD", 24),
        ("gpus", "4", 8),
        ("total_usd", "7 USD", 7),
        ("total", "7 USD", 7),
    ],
)
def test_set_reaches_rows_of_the_catalog_parameters_and_intermediates(key, written, expected):
    assert value("total", {}, {key: written}) == expected


def test_set_reaches_parameters_that_are_no_numbers():
    assert ask("shop", {}, {"mode": "fp8"}).inputs["mode"] == "fp8"
    assert value("longer", {}, {"model": "llama-3.1-70b"}) == 8192 * 80


def test_set_may_be_a_function_of_what_was():
    assert value("total", {}, {"price_usd": lambda was: replaced(was, was.value * 10)}) == 160


def test_set_on_a_parameter_stays_in_its_range():
    with pytest.raises(SpecError, match="too large"):
        ask("shop", {}, {"gpus": "1000"})


@pytest.mark.parametrize("key", ["prise", "gpu_count", "zzzz"])
def test_set_on_nothing_is_refused_with_the_nearest(key):
    with pytest.raises(SpecError) as caught:
        ask("shop", {}, {key: "3"})
    assert caught.value.where == "--set"
    assert caught.value.remedy


def test_set_with_another_unit_says_where():
    with pytest.raises(UnitError) as caught:
        ask("shop", {}, {"price_usd": "3 s"})
    assert caught.value.where == "--set price_usd"


def test_an_error_of_a_topic_says_at_least_which_topic():
    @topic("rude", subject="test")
    def rude() -> Answer:
        """Says no."""
        raise SpecError("no")

    try:
        with pytest.raises(RidgelineError) as caught:
            ask("rude")
        assert caught.value.where == "rude"
    finally:
        del TOPICS["rude"]


def test_a_number_out_of_all_range_is_bad_input_and_not_a_crash():
    @topic("huge", subject="test")
    def huge(size: Number = amount("2", "", "Size.")) -> Answer:
        """Grows."""
        return Answer("{size}", {"size": size**1e6})

    try:
        with pytest.raises(SpecError, match="out of all range") as caught:
            ask("huge")
        assert caught.value.where == "huge"
    finally:
        del TOPICS["huge"]


def test_an_unknown_topic_names_the_nearest():
    with pytest.raises(SpecError, match="no topic") as caught:
        find_topic("shopp")
    assert "shop" in caught.value.remedy


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("context_tokens", "context"),
        ("per_user_bytes", "per_user"),
        ("memory_bytes_per_s", "memory_bytes_per_s"),
        ("kv-dtype", "kv_dtype"),
        ("s", "s"),
    ],
)
def test_a_name_is_asked_for_without_its_unit(name, short):
    assert stem(name) == short


def test_alike_names_differ_by_their_unit_only():
    assert alike("left", ["left_bytes", "row.left_s", "lefty"]) == ["left_bytes", "row.left_s"]


def test_two_topics_cannot_have_one_name():
    with pytest.raises(AssertionError, match="two topics"):
        topic("shop", subject="test")(lambda: None)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("memory_bytes", "-80GB"),
        ("memory_bytes", "0 GB"),
        ("memory_bytes", "1e305PB"),
        ("layers", "2.5"),
        ("layers", "-32"),
        ("layers", "0"),
        ("all_bytes", "-1 GB"),
        ("price_usd", "-2"),
    ],
)
def test_set_refuses_what_cannot_stand_for_what_it_replaces(setting, value):
    with pytest.raises(UnitError) as caught:
        ask("shop", {}, {setting: value})
    assert caught.value.where == f"--set {setting}"
    assert caught.value.remedy


@pytest.mark.parametrize(("setting", "value"), [("price_usd", "0"), ("layers", "40")])
def test_set_takes_what_may_be(setting, value):
    assert ask("shop", {}, {setting: value}).remarks == ()


@pytest.mark.parametrize(
    ("setting", "value", "told"),
    [
        ("memory_bytes", "80kB", "memory_bytes is 1e6 times smaller than what it replaces: 85"),
        ("all_bytes", "700EB", "all_bytes is 1e9 times larger than"),
        ("memory_bytes", "80Gb", "memory_bytes is set in bits: 80 Gb are 10 GB."),
    ],
)
def test_a_setting_that_may_be_a_slip_is_told(setting, value, told):
    (remark,) = ask("shop", {}, {setting: value}).remarks
    assert remark.startswith(told)


def test_an_option_and_the_same_setting_are_refused():
    with pytest.raises(SpecError, match="gpus is given twice") as caught:
        ask("shop", {"gpus": "4"}, {"gpus": "2"})
    assert caught.value.where == "--set gpus"


def test_a_context_beyond_the_models_is_told_with_what_the_catalog_knows():
    assert ask("shop", {"context_tokens": "128k"}).remarks == ()
    (remark,) = ask("shop", {"context_tokens": "200k"}).remarks
    assert "204,800 tokens are beyond the context of Llama 3.1 8B" in remark
    assert "131,072 tokens" in remark


def test_it_says_which_rows_of_the_catalog_it_is_about():
    assert ask("shop", {"accelerator": "A100"}).about == "Llama 3.1 8B on A100 SXM4 80 GB"


def test_upper_and_lower_case_of_a_choice_are_the_same():
    assert ask("shop", {"mode": "FP8"}).inputs["mode"] == "fp8"


def test_where_arithmetic_fails_the_input_that_is_farthest_off_is_named():
    @topic("cliff", subject="test")
    def cliff(
        high_tokens: Number = amount("8k", "tokens", "High."),
        wide: Number = count(8, "Wide."),
        deep: Number = amount("2", "", "Deep."),
    ) -> Answer:
        """How far it falls."""
        return Answer("{x}", {"x": high_tokens * wide ** (deep * 1000)})

    try:
        with pytest.raises(SpecError, match="out of all range") as caught:
            ask("cliff", {"wide": "16", "high_tokens": "1e200"})
        assert (caught.value.where, caught.value.remedy) == ("high", "nearer to 8k")
        with pytest.raises(SpecError) as caught:
            ask("cliff", {"wide": "16"})
        assert caught.value.where == "wide"
    finally:
        del TOPICS["cliff"]


def test_a_price_that_no_list_has_can_be_set():
    @topic("till", subject="test")
    def till(accelerator: Accelerator = an_accelerator("h100-pcie")) -> Answer:
        """What an hour costs."""
        return Answer("{price}", {"price": accelerator.price_usd_per_s})

    try:
        with pytest.raises(CatalogError, match="no on-demand price"):
            ask("till")
        set_price = ask("till", {}, {"price_usd_per_s": "2.5 USD/h"})
        assert set_price.answer.values["price"].to("USD/h") == pytest.approx(2.5)
    finally:
        del TOPICS["till"]
