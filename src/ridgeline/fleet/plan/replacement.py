"""Whether to replace a device that faulted again: at which repeat it is cheapest to stop trying.

Most faults come from a few devices that are really bad; each fault is weak evidence of being one.
"""

import math
from dataclasses import dataclass

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.errors import SpecError
from ridgeline.physics.chance import poisson_tail
from ridgeline.physics.evidence import faults_until, faulty_chance, share_after
from ridgeline.quantity import Number, Provenance, Quantity, choose, given, holds, smallest
from ridgeline.topics import Answer, amount, an_accelerator, count, flag, topic
from ridgeline.units import parse_unit

#: Thresholds that are compared; beyond them stands never.
MOST = 12


@dataclass(frozen=True)
class Money:
    """Cost of a fault and of a replacement, and faults of a bad and a good device in a window."""

    fault_usd: Number
    replace_usd: Number
    bad: Number
    good: Number

    def until(self, threshold: Number, mean: Number) -> Number:
        """Faults until it goes, its replacement, and the few faults of the new one after that."""
        faults = faults_until(threshold, mean) + share_after(threshold, mean) * self.good
        return self.fault_usd * faults + self.replace_usd * poisson_tail(mean, threshold)


@topic("device-replacement", subject="fleet")
def device_replacement(
    faults: Number = count(2, "Faults of this device so far.", noun="faults", least=0),
    seen_s: Number = amount("30 day", "day", "Time in which they came.", least="1 h"),
    window_s: Number = amount("365 day", "day", "Time that a device is judged over.", least="1 h"),
    faulty_share: Number = amount(
        "0.05", "", "Share of faulted devices that are really bad.", least="0.0001", most="0.9999"
    ),
    faulty_mean_s: Number = amount("20 day", "day", "Between faults of a bad one.", least="1 h"),
    good_mean_s: Number = amount("1000 day", "day", "Between faults of a good one.", least="1 h"),
    job_gpus: Number = count(512, "GPUs that lose work at a fault.", noun="GPUs"),
    lost_s: Number = amount("20 min", "min", "Time that they lose."),
    accelerator: Accelerator = an_accelerator("h100-sxm", "The device whose time is lost."),
    price_usd_per_s: Number = amount("0 USD/h", "USD/h", "Value of a GPU; 0: the catalog's."),
    handling_usd: Number = amount("500 USD", "USD", "Work and shipping of a replacement."),
    out_s: Number = amount("3 day", "day", "Time that the node is out for it."),
    node_gpus: Number = count(8, "GPUs of the node.", noun="GPUs"),
    fatal: bool = flag(False, "Failed row remap, Xid 64 or 157, or a failed field diagnostic."),
) -> Answer:  # fmt: skip
    """Replace or keep a device after faults, and the repeat at which replacing is cheapest."""
    _worse(faulty_mean_s, good_mean_s)
    each = accelerator.price_or(price_usd_per_s)
    fault_usd = (job_gpus * lost_s * each).named("fault_usd", "USD")
    away_usd = (out_s * node_gpus * each).named("away_usd", "USD")
    replace_usd = (handling_usd + away_usd).named("replace_usd", "USD")
    bad = (window_s / faulty_mean_s).named("faults_if_bad", "faults")
    good = (window_s / good_mean_s).named("faults_if_good", "faults")
    money = Money(fault_usd, replace_usd, bad, good)
    rule = _costs(money, faulty_share, "cost")
    best = smallest(**rule).named("least_cost", "USD")
    threshold = _threshold(best)
    by_history = faulty_chance(faults, seen_s, faulty_share, faulty_mean_s, good_mean_s)
    certain = given(1, name="certain", provenance=Provenance.DEFINED, source="a fatal sign")
    chance: Number = choose(fatal, certain, by_history, why="fatal sign")
    chance = chance.named("chance_it_is_bad", "%")
    keep_usd = smallest(**_costs(money, chance, "kept")).named("keep_cost", "USD")
    now_usd = (replace_usd + fault_usd * good).named("replace_cost", "USD")
    return Answer(
        _says(
            fatal,
            keep=holds(keep_usd <= now_usd),
            is_never=holds(threshold.value == float("inf")),
        ),
        {
            "threshold": threshold,
            "least_cost": best,
            "chance_it_is_bad": chance,
            "keep_cost": keep_usd,
            "replace_cost": now_usd,
            "fault_cost": fault_usd,
        },
        _table(money, rule),
        (accelerator.price_note(price_usd_per_s, "--price-usd-per-s"), *_NOTES),
    )


_NOTES = (
    "Four triggers: a fatal sign, at once; the threshold's repeat of one fault after a clean "
    "retest; a failed field diagnostic; out of its peers' band for a week after a reseat.",
    "A pass proves little: `ridgeline plan intermittent-fault`. History outweighs it.",
    "Row-remap counters cannot be read while MIG instances are active: look before enabling MIG.",
    "A replacement counts as a good device: it passed acceptance. The rule counts faults over the "
    "whole window; the verdict also weighs how fast they came.",
)


def _threshold(best: Quantity) -> Quantity:
    """The repeat that is cheapest; unlimited where never is."""
    value = choose(best.chosen >= MOST, math.inf, best.chosen + 1.0, why="never is")
    return Quantity(
        value, parse_unit("faults"), name="threshold", op="cheapest", args=(best,)
    ).named("threshold")


def _says(fatal: bool, *, keep: bool, is_never: bool) -> str:
    rule = (
        "as a rule, replacing never pays within {window_s}"
        if is_never
        else "as a rule, replacing is cheapest at {threshold} in {window_s}"
    )
    if fatal:
        return f"replace at once: the sign is fatal; without one, {rule}"
    verdict = "keep" if keep else "replace"
    return f"{verdict}: {{faults}} in {{seen_s}} make it a bad one at {{chance_it_is_bad}}; {rule}"


def _costs(money: Money, faulty_share: Number, name: str) -> dict[str, Number]:
    """Expected cost over the window of replacing at each repeat, and of never doing it."""
    costs: dict[str, Number] = {}
    for k in range(1, MOST + 1):
        at = given(k, "faults", name=f"repeat_{k}", source="each is tried")
        mixed = faulty_share * money.until(at, money.bad)
        mixed += (1 - faulty_share) * money.until(at, money.good)
        costs[f"at_{k}"] = mixed.named(f"{name}_at_{k}", "USD")
    faults = faulty_share * money.bad + (1 - faulty_share) * money.good
    costs["never"] = (money.fault_usd * faults).named(f"{name}_never", "USD")
    return costs


def _table(money: Money, rule: dict[str, Number]) -> tuple[dict[str, Quantity | str], ...]:
    """The rule's cost at each repeat, beside what it does to good and to bad devices."""
    rows: list[dict[str, Quantity | str]] = []
    for k, (name, cost) in enumerate(rule.items(), 1):
        never = name == "never"
        needless = 0 * money.good if never else poisson_tail(money.good, k)
        borne = money.bad if never else faults_until(k, money.bad)
        rows.append({
            "replace": "never" if never else f"at fault {k}",
            "expected cost": cost,
            "good ones replaced": needless.named(f"needless_{name}", "%"),
            "faults of a bad one": borne.named(f"borne_{name}", "faults"),
        })  # fmt: skip
    return tuple(rows)


def _worse(faulty_mean_s: Number, good_mean_s: Number) -> None:
    if not holds(faulty_mean_s < good_mean_s):
        raise SpecError("a bad device has to fault more often than a good one",
                        where="faulty-mean", remedy="less than good-mean")  # fmt: skip
