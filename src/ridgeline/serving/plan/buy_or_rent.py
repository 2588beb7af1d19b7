"""Buying an accelerator or renting it: the share of hours from which owning is cheaper."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.physics.money import aged_residual, break_even_utilisation, owned_usd
from ridgeline.quantity import Number, Quantity, given, holds
from ridgeline.topics import Answer, amount, an_accelerator, topic

_HORIZONS = (1, 2, 3, 4, 5)


@topic("buy-or-rent", subject="cost")
def buy_or_rent(
    capex: Number = amount("35000 USD", "USD", "A device with its share of all else.", least="1"),
    accelerator: Accelerator = an_accelerator("h100-sxm", "The device that is rented."),
    rent: Number = amount(
        "0 USD/h", "USD/h", "Rent of the same device; 0 takes the catalog's price."
    ),
    residual: Number = amount(
        "0.35", "", "Share of the price left at the horizon.", most="1", interval=("0.1", "0.35")
    ),
    horizon_s: Number = amount("2 years", "years", "Time until it is sold.", least="1 month"),
    power: Number = amount("1.3 kW", "kW", "Drawn, cooling included.", least="1 W"),
    energy: Number = amount("0.08 USD/kWh", "USD/kWh", "Price of energy.", least="0.001 USD/kWh"),
    operations: Number = amount(
        "5 %/year", "%/year", "Share of the purchase that running it costs.", least="0.001 %/year"
    ),
    utilisation: Number = amount(
        "0.7", "", "Share of hours that are needed.", least="0.001", most="1"
    ),
) -> Answer:
    """The utilisation from which owning a device beats renting it, and what swings it.

    Owned machines are powered all the time; rented ones are paid for when needed.
    """
    told = accelerator.price_note(rent, "--rent")
    rent = accelerator.price_or(rent)
    owned = owned_usd(capex, residual, power, energy, operations, horizon_s)
    even = break_even_utilisation(owned, rent, horizon_s).named("break_even", "%")
    hourly = (owned / horizon_s).named("owned_price", "USD/h")
    parts = {
        "lost_value": (capex * (1 - residual)).named("lost_value", "USD"),
        "energy_cost": (power * energy * horizon_s).named("energy_cost", "USD"),
        "operations_cost": (capex * operations * horizon_s).named("operations_cost", "USD"),
    }
    needed = (hourly / utilisation).named("owned_price_at_use", "USD/h")
    return Answer(
        "over {horizon_s} owning beats renting where {break_even} of the hours are needed or more: "
        "owned {owned_price}, rented {device_price}"
        if holds(even <= 1)
        else "over {horizon_s} renting wins even if every hour is needed: owned {owned_price}, "
        "rented {device_price}; the break-even would be {break_even} of the hours",
        {
            "break_even": even,
            "owned_price": hourly,
            "owned_price_at_use": needed,
            "device_price": rent,
            "owned": owned.named("owned", "USD"),
            **parts,
        },
        table=tuple(
            _other(one, horizon_s, residual, (capex, rent, power, energy, operations))
            for one in _HORIZONS
        ),
        notes=(
            told,
            "resale value and the rental market do the swinging; the price of energy hardly does",
            "above 100 % no utilisation pays for the purchase within the horizon",
            "other horizons keep the same yearly loss of value as the one that was asked for",
        ),
    )


def _other(
    years: int, sold_s: Quantity, residual: Quantity, of: tuple[Number, ...]
) -> dict[str, Quantity | str]:
    capex, rent, power, energy, operations = of
    horizon = given(years, "years", name="other_horizon_s", source="8,760 hours a year")
    left = aged_residual(residual, horizon, sold_s)
    owned = owned_usd(capex, left, power, energy, operations, horizon)
    return {
        "horizon": horizon,
        "residual": left.named("aged_residual", "%"),
        "owned_price": (owned / horizon).named("owned_price", "USD/h"),
        "break_even": break_even_utilisation(owned, rent, horizon).named("break_even", "%"),
    }
