"""Buying against renting."""

import pytest

from ridgeline.platform.plan import topics
from ridgeline.topics import ask

topics()

LEDGER = {
    "capex": "35000 USD",
    "power": "1.3 kW",
    "energy": "0.08 USD/kWh",
    "operations": "5 %/year",
    "horizon_s": "2 years",
}


@pytest.mark.proves("S091")
@pytest.mark.parametrize(
    ("residual", "rent", "expected"), [("0.35", "2.60 USD/h", 0.62), ("0.1", "2.00 USD/h", 1.05)]
)
def test_break_even_moves_from_62_to_105_percent_with_resale_and_rent_other_horizons_beside(
    residual: str, rent: str, expected: float
):
    asked = ask("buy-or-rent", LEDGER | {"residual": residual, "rent": rent})
    assert asked.answer.values["break_even"].value == pytest.approx(expected, rel=0.01)
    years = [row["horizon"].to("years") for row in asked.answer.table]
    assert years == pytest.approx([1, 2, 3, 4, 5])
    two = asked.answer.table[1]
    assert two["break_even"].value == pytest.approx(asked.answer.values["break_even"].value)


def test_resale_and_rent_swing_the_break_even_and_energy_hardly_does():
    def even(**changed: str) -> float:
        return float(ask("buy-or-rent", LEDGER | changed).answer.values["break_even"].value)

    swing = {
        name: abs(even(**{name: high}) - even(**{name: low}))
        for name, low, high in (
            ("residual", "0.1", "0.35"),
            ("rent", "2.00 USD/h", "2.60 USD/h"),
            ("energy", "0.06 USD/kWh", "0.10 USD/kWh"),
        )
    }
    assert swing["residual"] > 5 * swing["energy"]
    assert swing["rent"] > 5 * swing["energy"]


def test_at_the_break_even_utilisation_an_owned_hour_costs_the_rent():
    rented = LEDGER | {"rent": "2.60 USD/h"}
    even = ask("buy-or-rent", rented).answer.values["break_even"].value
    values = ask("buy-or-rent", rented | {"utilisation": str(even)}).answer.values
    assert values["owned_price_at_use"].to("USD/h") == pytest.approx(2.60)


def test_a_years_loss_of_value_repeats():
    rows = ask("buy-or-rent", LEDGER | {"residual": "0.36"}).answer.table
    assert [row["residual"].value for row in rows[:4]] == pytest.approx([0.6, 0.36, 0.216, 0.1296])
