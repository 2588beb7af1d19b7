"""Synchronous jobs pull all their nodes' peaks at once: what a feed sees, and what keeps it whole.

A step is written `PHASE DURATION POWER; ...`, power as a share of a node's most:
`compute 800ms 100%; all-reduce 200ms 40%`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.errors import SpecError, UnitError
from ridgeline.physics.power import buffer_j, clock_share, command_all_s, nodes_fed
from ridgeline.quantity import (
    Number,
    Provenance,
    Quantity,
    applied,
    choose,
    given,
    holds,
    largest,
    smallest,
    value_of,
)
from ridgeline.topics import Answer, amount, an_accelerator, count, text, topic
from ridgeline.units import parse_number, parse_unit

_ROUNDING = 1e-9
#: More jobs than these are as even as can be.
_MOST_JOBS = 64
_EXAMPLE = "compute 800ms 100%; all-reduce 200ms 40%"
#: Time until a durable fix is in place.
_LEADS = {"start jobs apart": "1 h", "floor load, ramp limits": "14 day",
          "storage in racks": "180 day", "a larger feed": "540 day"}  # fmt: skip


@dataclass(frozen=True)
class Phase:
    """A part of a step: how long it takes, and the share of a node's power that it draws."""

    name: str
    lasts: Quantity
    power: Quantity


@dataclass(frozen=True)
class Fix:
    """A way to keep the feed whole: the peak with it, what it costs, and when it is in effect."""

    name: str
    peak_w: Number
    cost: Number
    effect_s: Number


@dataclass(frozen=True)
class Site:
    """Nodes on a feed, what each draws at its peak, and what all draw at most and on average."""

    nodes: Number
    node_peak_w: Number
    feed_w: Number
    peak_w: Number
    average_w: Number


@topic("power-peak", subject="fleet")
def power_peak(
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    nodes: Number = count(128, "Nodes on the feed.", noun="nodes"),
    node_w: Number = amount("10.2 kW", "kW", "Most that a node draws.", least="100 W",
                            source="DGX H100 datasheet"),
    feed_w: Number = amount("1.2 MW", "MW", "Limit of the feed.", least="1 kW"),
    phases: str = text(
        _EXAMPLE, "Phases of a step as NAME DURATION POWER; ...", other="compute 1s 100%"
    ),
    jobs: Number = count(4, "Independent jobs that share the nodes evenly.", noun="jobs",
                         most=_MOST_JOBS),
    static_share: Number = amount("0", "", "Board power that no clock lowers.", most="0.25"),
    least_cap: Number = amount("0.3", "", "Lowest power limit that a board takes.", least="0.05",
                               most="1"),
    nodes_at_once: Number = count(32, "Nodes that are told a limit at once.", noun="nodes"),
    command_s: Number = amount("2 s", "s", "Time of one such command."),
) -> Answer:  # fmt: skip
    """Peak of synchronised jobs on a feed, the cap that keeps it, its cost, and ranked fixes."""
    _moves_a_clock(least_cap, static_share)
    step, boards = read(phases), boards_share(accelerator, node_w)
    length = _sum([one.lasts for one in step]).named("step", "s")
    energy = _sum([one.lasts * one.power for one in step])
    most = largest(**{_word(one.name): one.power for one in step}).named("peak_share")
    fleet_w = (nodes * node_w).named("all_nodes", "MW")
    peak_w = (fleet_w * most).named("peak")
    average_w = (fleet_w * energy / length).named("average")
    allowed = (feed_w / fleet_w).named("allowed_share", note="of what all nodes draw at most")

    def cap_of(power: Number) -> Number:
        """What is left to the boards in a phase, as a share of what they would draw in it."""
        return smallest(uncapped=1, feed=1 - (1 - allowed / power) / boards)

    needed = cap_of(most).named("cap_needed", "%")
    cap = largest(needed=needed, lowest_limit=least_cap).named("cap", "%")
    slower = [
        one.lasts
        / clock_share(largest(needed=cap_of(one.power), lowest_limit=least_cap), static_share)
        for one in step
    ]
    cost = (1 - length / _sum(slower).named("capped_step", "s")).named("throughput_cost", "%")
    capped_w = (peak_w * (1 - boards * (1 - cap))).named("capped_peak")
    compute_cost = (1 - clock_share(cap, static_share)).named(
        "compute_cost", "%", note="of the clock, in the phase that draws most"
    )
    told_s = command_all_s(nodes, nodes_at_once, command_s).named("time_to_cap")
    stored = buffer_j(largest(none=0 * peak_w, excess=peak_w - feed_w), _high(step, allowed))
    site = Site(nodes, node_w * most, feed_w, peak_w, average_w)
    capped = Fix("cap all boards alike", capped_w, cost, told_s)
    fixes = [capped, *_others(site, told_s, (fleet_w * staggered(step, jobs)))]
    possible = holds(needed >= least_cap)
    return Answer(
        _says(possible, holds(peak_w <= feed_w)),
        {
            "cap": cap,
            "throughput_cost": cost,
            "compute_cost": compute_cost,
            "peak": peak_w,
            "capped_peak": capped_w,
            "average": average_w,
            "peak_to_average": (peak_w / average_w).named("peak_to_average", "x"),
            "time_to_cap": told_s,
            "storage": stored.named("storage"),
        },
        _ranked(fixes, feed_w),
        _NOTES,
        ok=possible,
    )


_NOTES = (
    "Jobs that wait for all ranks are in phase: the peak is the sum of all nodes' peaks, not of "
    "their averages. Between jobs nothing keeps phases apart: starts drift into line.",
    "A cap is on the boards; fans, CPUs and NICs draw on, so boards give up more than the feed has "
    "to. Only phases above the limit slow down.",
    "Four durable fixes: jobs started apart or mixed with inference, floor load with ramp limits "
    "(for the swing, which utilities mind: not for the peak), storage in racks, a larger feed.",
)


def read(written: str) -> list[Phase]:
    """The phases of a text; SpecError or UnitError says which is wrong."""
    found: dict[str, Phase] = {}
    for part in filter(None, (part.strip() for part in written.split(";"))):
        words = part.split()
        if len(words) != len(_EXAMPLE.split(";")[0].split()):
            raise SpecError(f"{part!r} is no phase", where="phases", remedy=_EXAMPLE)
        name, lasts, power = words
        if _word(name) in map(_word, found):
            raise SpecError(f"{name} is there twice", where="phases", remedy="another name")
        found[name] = Phase(
            name, _number(name, "lasts", lasts, "s"), _number(name, "power", power, "")
        )
    if not found:
        raise SpecError("there are no phases", where="phases", remedy=_EXAMPLE)
    return list(found.values())


def _number(phase: str, what: str, written: str, unit: str) -> Quantity:
    try:
        value, known = parse_number(written, parse_unit(unit).dimension)
    except UnitError as error:
        raise UnitError(f"{phase}: {error.problem}", where="phases", remedy=_EXAMPLE) from error
    if value <= 0 or (what == "power" and value > 1):
        raise SpecError(
            f"{phase}: {written} is out of range", where="phases",
            remedy="a duration above 0, and a power up to 100%",
        )  # fmt: skip
    return given(
        value / known.factor, known.symbol, name=f"{_word(phase)}_{what}",
        provenance=Provenance.ASSUMED, source="phases",
    )  # fmt: skip


def staggered(step: Sequence[Phase], jobs: Number) -> Number:
    """The highest share of all nodes' power when so many equal jobs start evenly apart."""
    lasts = [one.lasts / step[0].lasts for one in step]
    powers = [one.power for one in step]

    def highest(count: float, *numbers: float) -> float:
        times, shares = numbers[: len(step)], numbers[len(step) :]
        whole, n = sum(times), round(count)
        edges = [sum(times[:k]) for k in range(len(times))]

        def draw(at: float) -> float:
            inside = (at + 1e-9 * whole) % whole
            return shares[max(k for k, edge in enumerate(edges) if edge <= inside)]

        # The sum changes only where a job changes phase: at an edge, moved by a job's start.
        starts = [j * whole / n for j in range(n)]
        return max(
            sum(draw(edge + start - other) for other in starts) / n
            for edge in edges for start in starts
        )  # fmt: skip

    return applied("staggered", highest, jobs, *lasts, *powers)


def _others(site: Site, told_s: Number, apart_w: Number) -> list[Fix]:
    """What else could be done than a cap: nodes stopped at once, and what lasts."""
    free = 0 * (site.peak_w / site.feed_w)
    fed = smallest(all=site.nodes, fed=nodes_fed(site.feed_w, site.node_peak_w))
    limited = smallest(peak=site.peak_w, feed=site.feed_w)
    # Storage fills between peaks: it cannot help where the average is above the feed.
    stored_w = largest(limited=limited, average=site.average_w)
    return [
        Fix("stop nodes", fed * site.node_peak_w, 1 - fed / site.nodes, told_s),
        Fix("start jobs apart", apart_w, free, _lead("start jobs apart")),
        Fix("floor load, ramp limits", site.peak_w, free, _lead("floor load, ramp limits")),
        Fix("storage in racks", stored_w, free, _lead("storage in racks")),
        Fix("a larger feed", limited, free, _lead("a larger feed")),
    ]


def boards_share(accelerator: Accelerator, node_w: Number) -> Quantity:
    """Share of a node's power that its boards draw; SpecError where that is more than all."""
    share: Quantity = accelerator.per_node * accelerator.tdp_w / node_w
    if not holds(share <= 1 + _ROUNDING):
        raise SpecError(
            f"less than the boards of {accelerator.name} draw together", where="node",
            remedy="the most that the whole node draws",
        )  # fmt: skip
    return share.named("boards_share", "%", note="of a node's power; a cap moves only this")


def _ranked(fixes: Sequence[Fix], feed_w: Number) -> tuple[dict[str, Quantity | str], ...]:
    """Those that keep the feed first; of them what acts within a day first, then the cheaper."""
    day_s = 86_400

    def rank(fix: Fix) -> tuple[bool, bool, float, float]:
        cost, effect = (float(_first(one)) for one in (fix.cost, fix.effect_s))
        return not holds(fix.peak_w <= feed_w * (1 + _ROUNDING)), effect > day_s, cost, effect

    rows = []
    for place, fix in enumerate(sorted(fixes, key=rank), 1):
        word = _word(fix.name.replace(" ", "_").replace(",", ""))
        rows.append({
            "rank": str(place),
            "fix": fix.name,
            "keeps the feed": "no" if rank(fix)[0] else "yes",
            "peak": fix.peak_w.named(f"{word}_peak"),
            "throughput cost": fix.cost.named(f"{word}_cost", "%"),
            "in effect after": fix.effect_s,
        })  # fmt: skip
    return tuple(rows)


def _says(possible: bool, fits: bool) -> str:
    if not possible:
        return "No cap keeps {peak} under {feed_w}: boards go no lower than {least_cap}"
    if fits:
        return "{peak} fit the feed of {feed_w} uncapped"
    return (
        "{peak} on a feed of {feed_w}: boards at {cap} keep it at {capped_peak}, for "
        "{throughput_cost} of throughput"
    )


def _high(step: Sequence[Phase], allowed: Number) -> Number:
    """How long a step is above what the feed allows."""
    why = "above the feed"
    return _sum([choose(one.power > allowed, one.lasts, 0 * one.lasts, why=why) for one in step])


def _moves_a_clock(least_cap: Number, static_share: Number) -> None:
    if not holds(static_share < least_cap):
        raise SpecError(
            "a board's lowest limit is above its static power",
            where="static-share",
            remedy="less than least-cap",
        )


def _lead(name: str) -> Quantity:
    word = _word(name.replace(" ", "_").replace(",", ""))
    return given(_LEADS[name], name=f"{word}_lead", provenance=Provenance.ASSUMED,
                 source="usual; ask whoever builds it")  # fmt: skip


def _sum(numbers: Sequence[Number]) -> Number:
    total = numbers[0]
    for number in numbers[1:]:
        total = total + number
    return total


def _first(number: Number) -> Any:
    value = value_of(number)
    return value.flat[0] if getattr(value, "ndim", 0) else value


def _word(name: str) -> str:
    return name.replace("-", "_")
