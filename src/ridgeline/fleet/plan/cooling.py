"""The liquid loop of a row: flow, distribution units with spares, water, and what trips when."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ridgeline.errors import SpecError
from ridgeline.physics.heat import coolant_m3_per_s
from ridgeline.quantity import Number, Provenance, Quantity, ceil, given, holds, largest, smallest
from ridgeline.topics import Answer, amount, choice, count, stem, topic

_VENDOR = "class of in-row units sold 2024-26; take your vendor's sheet"
_LOOPS = "published loops run 25 to 45 C"
_ASHRAE = "ASHRAE TC 9.9, Water-Cooled Servers, 2019, technology loop (recalled)"

Row = dict[str, Quantity | str]


@dataclass(frozen=True)
class Limit:
    """What a sample of the coolant has to stay within, in `unit`."""

    watch: str
    least: float | None
    most: float
    unit: str = ""
    then: str = "treat or change coolant"


@dataclass(frozen=True)
class Coolant:
    """A fluid: heat capacity and density, and the limits that its samples have to keep."""

    j_per_kg_k: float
    kg_per_m3: float
    source: str
    limits: tuple[Limit, ...]
    limits_source: str


_FILTER = Limit("filter mesh", None, 50, "um", "fit a finer one")
COOLANTS = {
    "water": Coolant(
        4186, 1000, "water at 25 C, density rounded to 1 kg/L",
        (
            Limit("pH", 7, 9), Limit("conductivity", 0.2, 20, "uS/cm"), _FILTER,
            Limit("chloride", None, 5, "mg/L"), Limit("sulfate", None, 10, "mg/L"),
            Limit("hardness as CaCO3", None, 20, "mg/L"),
            Limit("suspended solids", None, 3, "mg/L"),
        ),
        _ASHRAE,
    ),
    "pg25": Coolant(
        3940, 1019.2, "propylene glycol 25 % at 30 C, Airedale DeltaChill manual",
        (Limit("pH", 8, 10.5), _FILTER), "usual for inhibited PG25; its maker has the last word",
    ),
}  # fmt: skip


@topic("liquid-cooling", subject="fleet")
def liquid_cooling(
    heat_w: Number = amount("1 MW", "W", "Heat that goes to liquid.", least="1 kW"),
    rise_k: Number = amount("10 K", "K", "Return less supply temperature.", least="1 K"),
    coolant: str = choice("water", tuple(COOLANTS), "Fluid of the technology loop."),
    cdu_w: Number = amount(
        "1.3 MW", "W", "Heat that one CDU moves.", least="1 kW", source=_VENDOR
    ),
    cdu_m3_per_s: Number = amount(
        "1500 L/min", "L/min", "Flow that one CDU pumps.", least="1 L/min", source=_VENDOR
    ),
    derate: Number = amount("0.8", "", "Share of its rating a CDU is planned at.", least="0.1",
                            most="1"),
    spare_cdus: Number = count(1, "CDUs beyond need: 1 is N+1.", noun="CDUs", least=0),
    feeds: Number = count(2, "Power feeds that the CDUs are spread over."),
    rack_w: Number = amount("120 kW", "W", "Heat of one rack to liquid.", least="1 kW"),
    supply_c: Number = amount("25 C", "C", "Supply temperature.", source=_LOOPS),
    return_limit_c: Number = amount("45 C", "C", "Most that may return.", source=_LOOPS),
    dew_point_c: Number = amount("15 C", "C", "Dew point of the room."),
    ph: Number = amount("8", "", "pH of the last sample.", most="14"),
    conductivity: Number = amount("5 uS/cm", "uS/cm", "Conductivity of the last sample."),
    filter_m: Number = amount("50 um", "um", "Mesh of the filter.", least="1 um"),
) -> Answer:  # fmt: skip
    """Flow, CDUs with spares, limits of the water, and trip logic of a liquid loop."""
    celsius(supply_c, return_limit_c, dew_point_c)
    if not holds(supply_c < return_limit_c):
        raise SpecError("the supply is as warm as what may return", where="supply",
                        remedy="a colder supply, or a higher return-limit")  # fmt: skip
    fluid = COOLANTS[coolant]
    facts = _facts(fluid)
    flow = coolant_m3_per_s(heat_w, rise_k, **facts).named("flow", "L/min")
    needed = largest(
        heat=ceil(heat_w / (cdu_w * derate)), flow=ceil(flow / cdu_m3_per_s)
    ).named("cdus_needed", "CDUs")  # fmt: skip
    total = (needed + spare_cdus).named("cdus", "CDUs")
    lost = ceil(total / feeds).named("cdus_on_one_feed", "CDUs")
    carried = smallest(all=1, left=(total - lost) / needed).named("carried_without_a_feed", "%")
    least_flow = coolant_m3_per_s(heat_w, return_limit_c - supply_c, **facts)
    trip_flow = least_flow.named("trip_flow", "L/min")
    margin_k = given(2, "K", name="dew_margin_k", provenance=Provenance.ASSUMED, source=_ASHRAE)
    dry_c = (dew_point_c + margin_k).named("least_supply_c", "C")
    return_c = (supply_c + rise_k).named("return_c", "C")
    trips = _trips(flow, trip_flow, supply_c, dry_c, return_c, return_limit_c)
    measured = {"pH": ph, "conductivity": conductivity, "filter mesh": filter_m}
    table = (*trips, *_sample(fluid, measured))
    broken = tuple(f"Out of limits: {row['watch']}." for row in table if row["holds"] == "no")
    return Answer(
        "{flow} of {coolant} carries {heat_w} at {rise_k}; {cdus}, of which {cdus_needed} must run",
        {
            "flow": flow,
            "cdus": total,
            "cdus_needed": needed,
            "rack_flow": coolant_m3_per_s(rack_w, rise_k, **facts).named("rack_flow", "L/min"),
            "racks": ceil(heat_w / rack_w).named("racks", "racks"),
            "trip_flow": trip_flow,
            "carried_without_a_feed": carried,
        },
        table,
        (*broken, *_NOTES, _glycol()),
        ok=not broken,
    )


_NOTES = (
    "Redundant pumps inside a CDU share its heat exchanger, feed and controller: spare CDUs on two "
    "feeds are what keeps a loop alive. carried_without_a_feed says what is left when one is lost.",
    "In seconds only firmware, the power brake and the rack's flow switch act: "
    "`ridgeline plan coolant-loss` has the time. Signals come in the order flow, pressure, die.",
    "Sample monthly: a loop outside its limits eats cold plates in one to three years.",
)


def _glycol() -> str:
    water, glycol = COOLANTS["water"], COOLANTS["pg25"]
    heat, dense = glycol.j_per_kg_k / water.j_per_kg_k, glycol.kg_per_m3 / water.kg_per_m3
    return (
        f"PG25 needs {1 / (heat * dense) - 1:.0%} more flow than water, not the 8 to 10 % often "
        f"said: a kilogram takes {1 - heat:.0%} less heat, but it is {dense - 1:.0%} denser."
    )


def _facts(fluid: Coolant) -> dict[str, Quantity]:
    facts = {
        "coolant_j_per_kg_k": (fluid.j_per_kg_k, "J/kg/K"),
        "coolant_kg_per_m3": (fluid.kg_per_m3, "kg/m^3"),
    }
    return {
        name: given(value, unit, name=name, provenance=Provenance.PUBLISHED, source=fluid.source)
        for name, (value, unit) in facts.items()
    }


def _trips(
    flow: Number, trip_flow: Number, supply_c: Number, dry_c: Number, return_c: Number,
    return_limit_c: Number,
) -> tuple[Row, ...]:  # fmt: skip
    """Watched all the time, in the order in which they show a fault; each has its action."""
    return (
        _row("flow of the loop", trip_flow, "", flow, "brake at once, off after 2 s"),
        _row("pressure over filter", "", "", "", "1.5x of commissioning: change filter"),
        _row("return temperature", "", return_limit_c, return_c, "brake, start a spare CDU"),
        _row("supply temperature", dry_c, "", supply_c, "raise it: it drips"),
        _row("leak rope", "", "", "", "shut rack valves, power off"),
        _row("die temperature", "", "", "", "firmware throttles"),
    )


def _sample(fluid: Coolant, measured: Mapping[str, Number]) -> tuple[Row, ...]:
    """Limits of the coolant itself, beside what was measured of it."""

    def bound(limit: Limit, value: float | None, end: str) -> Quantity | str:
        if value is None:
            return ""
        name = f"{end}_{limit.watch.replace(' ', '_').lower()}"
        source = fluid.limits_source
        return given(value, limit.unit, name=name, provenance=Provenance.ASSUMED, source=source)

    return tuple(
        _row(
            limit.watch, bound(limit, limit.least, "least"), bound(limit, limit.most, "most"),
            measured.get(limit.watch, ""), limit.then,
        )
        for limit in fluid.limits
    )  # fmt: skip


def _row(watch: str, least: Any, most: Any, now: Any, then: str) -> Row:
    low = least != "" and now != "" and not holds(now >= least)
    high = most != "" and now != "" and not holds(now <= most)
    kept = "" if now == "" else "no" if low or high else "yes"
    return {"watch": watch, "least": least, "most": most, "now": now, "holds": kept, "then": then}


def celsius(*temperatures: Number) -> None:
    """Refuse a temperature written in kelvins beside others in degrees Celsius."""
    for one in temperatures:
        if one.unit.symbol != "C":
            raise SpecError("temperatures are in degrees Celsius here",
                            where=stem(one.name).replace("_", "-"), remedy="e.g. 50C")  # fmt: skip
