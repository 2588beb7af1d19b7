"""A device costs what the catalog says, in every topic, until somebody tells another price."""

import pytest

from ridgeline.catalog.accelerators import Accelerator, accelerator
from ridgeline.errors import CatalogError
from ridgeline.platform.plan import topics
from ridgeline.topics import TOPICS, Asked, Parameter, ask

#: Topics whose device has no price in any catalog: it is assumed, and the answer says so.
ASSUMED = {"sram-only"}
PRICED = [
    (name, one)
    for name in sorted(topics())
    for one in TOPICS[name].parameters.values()
    if one.unit == "USD/h" and name not in ASSUMED
]


def _id(value: object) -> str:
    return value.name if isinstance(value, Parameter) else str(value)


def taken(asked: Asked) -> dict[str, float]:
    """The prices of devices behind an answer, in dollars an hour."""
    steps = {step.name: step for root in asked.roots for step in root.walk() if step.name}
    return {
        name: float(step.to("USD/h"))
        for name, step in steps.items()
        if name.endswith("device_price") or name.startswith("device_price_")
    }


def listed(asked: Asked) -> set[float]:
    chips = [one for one in asked.inputs.values() if isinstance(one, Accelerator)]
    return {float(chip.price_usd_per_s.to("USD/h")) for chip in chips}


def test_there_are_topics_to_look_at():
    assert {"training-cost", "spot-training", "cost-levers", "link-flap"} <= {n for n, _ in PRICED}


@pytest.mark.parametrize("name", sorted({name for name, _ in PRICED}))
def test_a_topic_takes_the_prices_of_the_catalog_and_says_so(name):
    asked = ask(name)
    assert taken(asked)
    assert set(taken(asked).values()) <= listed(asked)
    assert any("on-demand prices" in note for note in asked.answer.notes)


@pytest.mark.parametrize(("name", "parameter"), PRICED, ids=_id)
def test_a_price_that_is_told_is_the_one_taken(name, parameter):
    many = parameter.default.count(",") + 1
    asked = ask(name, {parameter.name: ", ".join(["1.25 USD/h"] * many)})
    assert 1.25 in taken(asked).values()
    told = f"--{parameter.option}"
    assert any("The price is the one" in note and told in note for note in asked.answer.notes)


def test_h200_is_trained_on_at_the_price_that_the_catalog_lists_for_it():
    given = {"accelerator": "h200-sxm", "model": "qwen3-32b", "tokens": "2T", "gpus": 1024}
    values = ask("training-cost", given).answer.values
    hours = values["gpu_time_s"].to("h")
    assert values["run_cost"].value == pytest.approx(hours * 3.5)
    h100 = ask("training-cost", given | {"accelerator": "h100-sxm"}).answer.values
    assert h100["run_cost"].value == pytest.approx(h100["gpu_time_s"].to("h") * 2.95)


def test_the_catalogs_price_keeps_its_range_and_its_sources_and_can_be_set():
    asked = ask("training-cost")
    [price] = asked.find("h100-sxm.price_usd_per_s")
    assert price.interval is not None
    assert price.source
    changed = ask("training-cost", {}, {"price_usd_per_s": "1 USD/h"}).answer
    assert changed.values["device_price"].to("USD/h") == pytest.approx(1)
    assert changed.notes[0].startswith("H100 SXM5 80 GB costs $1/h, as set")


def test_a_single_price_is_no_median():
    note = ask("spot-training", {"accelerator": "l40s"}).answer.notes[0]
    assert note.startswith("L40S costs $1.55/h, the only one listed")


def test_a_device_without_a_price_asks_for_one_and_takes_the_one_told():
    unpriced = accelerator("groq-lpu-v1")
    with pytest.raises(CatalogError, match="no on-demand price"):
        _ = unpriced.price_usd_per_s
    with pytest.raises(CatalogError, match="no on-demand price"):
        ask("spot-training", {"accelerator": "groq-lpu-v1"})
    told = ask("spot-training", {"accelerator": "groq-lpu-v1", "price": "2 USD/h"})
    assert told.answer.values["device_price"].to("USD/h") == pytest.approx(2)
