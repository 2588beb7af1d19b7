"""Tokens and bandwidth for a dollar, with the ledger's bandwidths and with the catalog's."""

import pytest

from ridgeline.errors import SpecError
from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

PRICES = "1.50 USD/h, 2.50 USD/h, 6.00 USD/h"
CHIPS = {"first": "a100-80gb-sxm", "second": "h100-sxm", "third": "b200-sxm", "prices": PRICES}


@pytest.mark.proves("S012")
def test_generations_are_within_2_percent_in_bf16_and_fp8_and_fp4_are_steps_of_two():
    asked = ask("tokens-per-dollar", CHIPS, {"b200-sxm.memory_bytes_per_s": "8 TB/s"})
    values = asked.answer.values
    assert values["bf16_spread"].value == pytest.approx(0.0195, rel=0.01)
    assert values["fp8_step"].value == pytest.approx(2.0, rel=0.01)
    assert values["fp4_step"].value == pytest.approx(2.0, rel=0.01)
    shipped = ask("tokens-per-dollar", CHIPS, {"b200-sxm.memory_bytes_per_s": "7.7 TB/s"})
    assert shipped.answer.values["bf16_spread"].value == pytest.approx(0.059, rel=0.01)
    assert len(asked.answer.table) == 3
    assert all("tie_price" in row for row in asked.answer.table)
    assert [row["rank"] for row in asked.answer.table] == ["1", "2", "3"]
    dearer = ask("tokens-per-dollar", CHIPS | {"prices": "2 USD/h, 2.5 USD/h, 6 USD/h"})
    assert [row["rank"] for row in dearer.answer.table] == ["3", "1", "2"]


def test_at_its_tie_price_each_generation_buys_as_much_as_the_best():
    asked = ask("tokens-per-dollar", CHIPS)
    ties = ", ".join(f"{row['tie_price'].value * 3600} USD/h" for row in asked.answer.table)
    even = ask("tokens-per-dollar", CHIPS | {"prices": ties})
    assert even.answer.values["bf16_spread"].value == pytest.approx(0, abs=1e-9)


def test_a_batch_past_the_ridge_makes_arithmetic_bind_and_the_generations_part():
    small = ask("tokens-per-dollar", CHIPS).answer.values["bf16_spread"].value
    large = ask("tokens-per-dollar", CHIPS | {"batch": 2048}).answer.values["bf16_spread"].value
    assert large > 5 * small


def test_older_cards_have_no_units_for_narrow_formats():
    first = ask("tokens-per-dollar", CHIPS).answer.table[0]
    assert first["fp8"] == "no units"


def test_two_prices_for_three_cards_are_refused():
    with pytest.raises(SpecError, match="2 prices for 3"):
        ask("tokens-per-dollar", CHIPS | {"prices": "1 USD/h, 2 USD/h"})


@pytest.mark.proves("S099")
def test_mi300x_is_1_98x_better_at_2_against_2_50_and_flips_at_51_percent_of_its_bandwidth():
    given = {"accelerator": "mi300x", "against": "h100-sxm"}
    prices = {"price": "2.00 USD/h", "against_price": "2.50 USD/h"}
    asked = ask("dollars-per-bandwidth", given | prices)
    values = asked.answer.values
    assert values["advantage"].value == pytest.approx(1.98, rel=0.01)
    assert values["flip_achieved"].value == pytest.approx(1 / 1.978, rel=0.01)
    flipped = ask(
        "dollars-per-bandwidth",
        given | prices | {"achieved": str(values["flip_achieved"].value)},
    )
    assert flipped.answer.values["advantage"].value == pytest.approx(1)
    sizes = [row["replica_gpus"].value for row in asked.answer.table]
    assert sizes == [1, 2]


def test_the_dearer_one_is_told_what_discount_would_do():
    given = {"accelerator": "h100-sxm", "against": "mi300x", "against_price": "2.5 USD/h"}
    asked = ask("dollars-per-bandwidth", given | {"price": "2 USD/h"})
    values = asked.answer.values
    assert values["advantage"].value < 1
    assert 0 < values["flip_discount"].value < 1
    cheaper = f"{2.0 * (1 - values['flip_discount'].value)} USD/h"
    even = ask(
        "dollars-per-bandwidth",
        given | {"price": cheaper},
    )
    assert even.answer.values["advantage"].value == pytest.approx(1)


def test_a_mixture_reads_the_experts_that_its_batch_visits_and_not_all():
    def best(name: str) -> float:
        return float(ask("tokens-per-dollar", {"model": name}).answer.values["best_bf16"].value)

    dense, mixture = best("llama-3.1-70b"), best("deepseek-v3")
    assert mixture > dense  # 37 B of 671 B are read for one sequence


def test_the_discount_that_flips_the_order_makes_both_equal():
    price = {"price": "2 USD/h"}
    values = ask("dollars-per-bandwidth", price | {"against_price": "2.5 USD/h"}).answer.values
    lower = 2.5 * (1 - values["flip_discount"].value)
    even = ask("dollars-per-bandwidth", price | {"against_price": f"{lower} USD/h"}).answer.values
    assert even["advantage"].value == pytest.approx(1)
