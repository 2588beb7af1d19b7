"""Denser racks in a hall that stays in use: batches, so that capacity never falls too low."""

from dataclasses import dataclass

from ridgeline.quantity import Number, Quantity, given, holds, largest, smallest
from ridgeline.topics import Answer, amount, count, topic
from ridgeline.units import parse_unit

_LEAD = "usual lead times; ask your utility and your vendors"
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Hall:
    """Racks with their power before and after, and the capacity that has to stay."""

    racks: Number
    old_w: Number
    new_w: Number
    floor_w: Number

    def capacity_w(self, done: Number, out: Number) -> Number:
        """Power of the racks in use when so many are done and so many are out."""
        return (self.racks - done - out) * self.old_w + done * self.new_w


@dataclass(frozen=True)
class Phase:
    """One batch: racks that are out, when, and what is in use meanwhile and after."""

    out: Quantity
    starts: Quantity
    ends: Quantity
    during_w: Quantity
    after_w: Quantity


@topic("rack-density", subject="fleet")
def rack_density(
    racks: Number = count(40, "Racks of the hall.", noun="racks", most=10_000),
    rack_w: Number = amount("40 kW", "kW", "Power of a rack today.", least="1 kW"),
    density: Number = amount("2", "x", "How many times as dense they become.", least="1.01"),
    floor_w: Number = amount("1.4 MW", "MW", "Capacity that has to stay in use."),
    feed_w: Number = amount("3.5 MW", "MW", "IT power of the hall once its feed is upgraded."),
    power_lead_s: Number = amount("270 day", "day", "Until the feed is upgraded.", source=_LEAD),
    cooling_lead_s: Number = amount("150 day", "day", "Until cooling is there.", source=_LEAD),
    floor_lead_s: Number = amount("45 day", "day", "Until the floor bears it.", source=_LEAD),
    network_lead_s: Number = amount("90 day", "day", "Until the network is there.", source=_LEAD),
    batch_s: Number = amount("14 day", "day", "Time that a batch of racks is out.", least="1 h"),
    crew_racks: Number = count(8, "Racks that can be worked on at once.", noun="racks"),
    upgrade_usd_per_w: Number = amount(
        "4 USD/W", "USD/W", "Cost of added power in this hall.", source="assumed"
    ),
    move_usd_per_w: Number = amount(
        "11 USD/W", "USD/W", "Cost of added power in a new hall.", source="assumed"
    ),
    move_lead_s: Number = amount("540 day", "day", "Until the new hall is in use.", source=_LEAD),
    value_usd_per_j: Number = amount(
        "2 USD/kWh", "USD/kWh", "What capacity earns: an H100 at 2.5 USD/h and 1.28 kW.",
    ),
) -> Answer:  # fmt: skip
    """Doubling the density of racks in use: phases, capacity over time, and upgrade or move."""
    new_w = (rack_w * density).named("new_rack_w", "kW")
    hall = Hall(racks, rack_w, new_w, floor_w)
    start = largest(
        power=power_lead_s, cooling=cooling_lead_s, floor=floor_lead_s, network=network_lead_s
    ).named("start", "day", note="all four upgrades have to be there")
    final = hall.capacity_w(racks, 0).named("final_capacity", "MW")
    whole = (racks * rack_w).named("capacity_today", "MW")
    phases, problem = plan(hall, start, batch_s, crew_racks)
    short = floor_w - (whole - rack_w)
    if not problem and not holds(final <= feed_w):
        problem = "the upgraded feed is less than all racks draw at their new density"
        short = final - feed_w
    least = smallest(
        today=whole, **{f"phase_{k}": one.during_w for k, one in enumerate(phases, 1)}
    ).named("least_capacity", "MW")  # fmt: skip
    finish = {} if problem else {"finish": phases[-1].ends.named("finish", "day")}
    values = finish | {
        "least_capacity": least,
        "floor": floor_w,
        "final_capacity": final,
        "phases": given(len(phases), "stages", name="phases", source="largest batches that fit"),
        "start": start,
    }
    table = tuple(_row(k, one) for k, one in enumerate(phases, 1))
    if problem:
        return Answer(
            f"It cannot be done: {problem}. {{short}} are missing",
            values | {"short": short.named("short", "kW")},
            table, (_REMEDY, *_NOTES), ok=False,
        )  # fmt: skip
    added = (final - whole).named("added_w", "MW")
    missing = _missing(phases, final, added * start, batch_s)
    upgrade = (upgrade_usd_per_w * added + value_usd_per_j * missing).named("upgrade_cost", "MUSD")
    waited = (added * move_lead_s).named("missing_until_moved", "MWh")
    move = (move_usd_per_w * added + value_usd_per_j * waited).named("move_cost", "MUSD")
    ratio = (upgrade / move).named("upgrade_over_move", "x")
    values |= {"upgrade_over_move": ratio, "upgrade_cost": upgrade, "move_cost": move}
    verdict = "upgrade" if holds(ratio <= 1) else "move"
    return Answer(
        "{final_capacity} after {finish} in {phases}, never below {least_capacity}; "
        f"{verdict}: upgrading costs {{upgrade_over_move}} of a move",
        values, table, _NOTES,
    )  # fmt: skip


_REMEDY = (
    "What would do: a smaller floor, capacity borrowed elsewhere for the first batch (after it the "
    "new racks carry the rest), a larger feed, or a move."
)
_NOTES = (
    "Density is four upgrades, each with its own lead time: power, cooling, floor, network. The "
    "latest of them decides the start.",
    "Both costs count what capacity would have earned while it is missing, not only the building.",
)


def plan(hall: Hall, start: Number, batch_s: Number, crew_racks: Number) -> tuple[list[Phase], str]:
    """The batches, each as large as floor and crew allow, and why there can be none, or nothing.

    Larger batches come first for free: racks that are done carry more, so batches only grow.
    """
    racks, phases = round(hall.racks.value), list[Phase]()
    now, done = start, given(0, "racks", name="done_0", source="none is done yet")
    while round(done.value) < racks:
        spare_w = hall.capacity_w(done, 0) - hall.floor_w
        fits = int(float(spare_w.value) / float(hall.old_w.value) + _ROUNDING)
        most = min(fits, round(crew_racks.value), racks - round(done.value))
        if most < 1:
            return phases, "taking one rack out already breaks the floor"
        k = len(phases) + 1
        # As many as the crew can do and the floor lets go.
        out = Quantity(
            float(most),
            parse_unit("racks"),
            op="batch",
            args=(hall.racks - done, spare_w, crew_racks),
        ).named(f"out_{k}")
        after = (done + out).named(f"done_{k}", "racks")
        ends = (now + batch_s).named(f"ends_{k}", "day")
        during_w = hall.capacity_w(done, out).named(f"during_{k}", "MW")
        after_w = hall.capacity_w(after, 0).named(f"after_{k}", "MW")
        phases.append(Phase(out, now, ends, during_w, after_w))
        now, done = ends, after
    return phases, ""


def _missing(phases: list[Phase], final: Number, before: Number, batch_s: Number) -> Number:
    """Energy that the finished hall would have used meanwhile and today's cannot."""
    missing = before
    for one in phases:
        missing = missing + (final - one.during_w) * batch_s
    return missing.named("missing_until_upgraded", "MWh")


def _row(k: int, phase: Phase) -> dict[str, Quantity | str]:
    return {
        "phase": f"{k}",
        "starts": phase.starts,
        "ends": phase.ends,
        "racks out": phase.out,
        "capacity meanwhile": phase.during_w,
        "capacity after": phase.after_w,
    }
