"""Levers that lower the cost of serving, alone and together, from one baseline.

A fleet's cost is one function of the set of levers pulled. What each saves alone is not what it
saves beside the others: batch and precision shorten the same step, a floor hides both, and an
hour that is committed cannot also be spot.
"""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.physics.money import decode_tokens_per_s
from ridgeline.quantity import Number, Quantity, ceil, holds, largest
from ridgeline.serving.plan.decode import Decode
from ridgeline.topics import Answer, a_model, amount, an_accelerator, choice, count, topic

LEVERS = ("card", "batch", "precision", "floor", "commitment", "spot")


@dataclass(frozen=True, slots=True)
class Fleet:
    """A serving fleet at its baseline, and what each lever would change."""

    model: Model
    chips: tuple[Accelerator, Accelerator]
    prices: tuple[Number, Number]
    batches: tuple[Number, Number]
    dtypes: tuple[str, str]
    floors: tuple[Number, Number]
    context_tokens: Number
    peak_tokens_per_s: Number
    trough_share: Number
    peak_share: Number
    memory_share: Number
    committed: Number
    commitment_discount: Number
    spot: Number
    spot_discount: Number
    spot_waste: Number

    def usd_per_s(self, pulled: AbstractSet[str]) -> Quantity:
        """What the fleet costs each second, on a day's average, with these levers pulled."""
        price = self.prices["card" in pulled] * self._blend(pulled)
        devices = self._replicas(pulled) * self._devices(pulled)
        return (devices * price).named("fleet_usd_per_s", "USD/h")

    def _replicas(self, pulled: AbstractSet[str]) -> Quantity:
        rate = self._rate(pulled)
        floor = self.floors["floor" in pulled]
        busy = self.peak_tokens_per_s / rate
        at_peak = largest(load=busy, floor=floor)
        at_trough = largest(load=busy * self.trough_share, floor=floor)
        mean = at_peak * self.peak_share + at_trough * (1 - self.peak_share)
        return mean.named("replicas", "replicas")

    def _rate(self, pulled: AbstractSet[str]) -> Quantity:
        """Tokens that a replica decodes each second, as the roofline has it."""
        batch = self.batches["batch" in pulled]
        step_s = self._decode(pulled, self._devices(pulled)).step_s(batch, self.context_tokens)
        return decode_tokens_per_s(batch, step_s).named("replica_tokens_per_s")

    def _decode(self, pulled: AbstractSet[str], devices: Number) -> Decode:
        chip, dtype = self.chips["card" in pulled], self.dtypes["precision" in pulled]
        return Decode(self.model, chip, devices, dtype)

    def _devices(self, pulled: AbstractSet[str]) -> Quantity:
        """The fewest devices that hold the weights and the caches of a batch."""
        one = self._decode(pulled, 1.0)
        cached = self.model.cache_bytes(self.context_tokens) * self.batches["batch" in pulled]
        usable = one.accelerator.memory_bytes * self.memory_share
        return ceil((one.weights_bytes + cached) / usable).named("replica_gpus", "GPUs")

    def _blend(self, pulled: AbstractSet[str]) -> Number:
        """Price of an hour over on demand: each hour is committed, spot, or neither."""
        one = self.committed * 0 + 1
        held = self.committed if "commitment" in pulled else one * 0
        bid = self.spot * (1 - held) if "spot" in pulled else one * 0
        paid = (1 - self.spot_discount) / (1 - self.spot_waste)
        blended = held * (1 - self.commitment_discount) + bid * paid + (1 - held - bid)
        return blended.named("price_over_on_demand")


@topic("cost-levers", subject="cost")
def cost_levers(
    model: Model = a_model("llama-3.1-8b"),
    accelerator: Accelerator = an_accelerator("h100-sxm"),
    price: Number = amount("0 USD/h", "USD/h", "Price of a device; 0 takes the catalog's."),
    other: Accelerator = an_accelerator("mi300x", "The card that the lever changes to."),
    other_price: Number = amount("0 USD/h", "USD/h", "Its price; 0 takes the catalog's."),
    batch: Number = count(16, "Sequences decoded at once.", noun="sequences"),
    larger_batch: Number = count(64, "With the batch lever.", noun="sequences"),
    dtype: str = choice("bf16", ("bf16", "fp8"), "Type of the weights."),
    narrower: str = choice("fp8", ("fp8", "bf16"), "With the precision lever."),
    floor: Number = count(12, "Replicas that are kept whatever the load.", noun="replicas"),
    lower_floor: Number = count(2, "With the floor lever.", least=0, noun="replicas"),
    commitment: Number = amount("0.5", "", "Share of hours that are committed.", most="1"),
    commitment_discount: Number = amount("0.4", "", "Saved on each of them.", most="1"),
    spot: Number = amount("0.5", "", "Share of the other hours that are spot.", most="1"),
    spot_discount: Number = amount("0.6", "", "Saved on each of them.", most="1"),
    spot_waste: Number = amount("0.1", "", "Share of spot hours lost to reclaims.", most="0.9"),
    context_tokens: Number = amount("4k", "tokens", "Cached tokens of a sequence.", least="1"),
    peak_rate: Number = amount("40000 tokens/s", "tokens/s", "Load at peak.", least="1 tokens/s"),
    trough_share: Number = amount("0.2", "", "Load off peak, over that at peak.", most="1"),
    peak_share: Number = amount("0.33", "", "Share of the day at peak.", most="1"),
    memory_share: Number = amount(
        "0.9", "", "Share of memory for weights and cache.", least="0.01", most="1"
    ),
) -> Answer:
    """What each cost lever saves from one baseline, in rank, and what they save together."""
    fleet = Fleet(
        model=model,
        chips=(accelerator, other),
        prices=(accelerator.price_or(price), other.price_or(other_price, "other_device_price")),
        batches=(batch, larger_batch),
        dtypes=(dtype, narrower),
        floors=(floor, lower_floor),
        context_tokens=context_tokens,
        peak_tokens_per_s=peak_rate,
        trough_share=trough_share,
        peak_share=peak_share,
        memory_share=memory_share,
        committed=commitment,
        commitment_discount=commitment_discount,
        spot=spot,
        spot_discount=spot_discount,
        spot_waste=spot_waste,
    )
    base, together = fleet.usd_per_s(frozenset()), fleet.usd_per_s(frozenset(LEVERS))
    alone = {lever: fleet.usd_per_s({lever}) for lever in LEVERS}
    ranked = sorted(LEVERS, key=lambda lever: float(alone[lever].value))
    saved = (1 - together / base).named("saved", "%")
    summed = sum((1 - alone[lever] / base for lever in ranked[1:]), 1 - alone[ranked[0]] / base)
    return Answer(
        "all levers together save {saved} of {base_usd_per_s}; alone the best saves {best_alone}"
        if holds(together <= base)
        else "all levers together cost {all_usd_per_s} instead of {base_usd_per_s}: leave out "
        "those that save nothing",
        {
            "saved": saved,
            "base_usd_per_s": base.named("base_usd_per_s", "USD/h"),
            "all_usd_per_s": together.named("all_usd_per_s", "USD/h"),
            "best_alone": (1 - alone[ranked[0]] / base).named("best_alone", "%"),
            "summed_alone": summed.named("summed_alone", "%", note="what adding them up would say"),
        },
        table=tuple(_path(fleet, ranked, alone, base)),
        notes=(
            accelerator.price_note(price),
            other.price_note(other_price, "--other-price"),
            "savings do not add: saves_alone is from the same baseline each time, saves_here comes "
            "on top of the rows above, and cost is what all rows so far cost together",
            "a lever that makes things dearer saves less than nothing: leave it out",
            "spot hours come off what is not committed, so no hour is discounted twice",
        ),
        ok=holds(together <= base),
    )


def _path(
    fleet: Fleet, ranked: list[str], alone: dict[str, Quantity], base: Quantity
) -> list[dict[str, Quantity | str]]:
    """A row for each lever in rank: what it saves alone, and what is left with those above it."""
    rows: list[dict[str, Quantity | str]] = []
    before = base
    for index, lever in enumerate(ranked, 1):
        after = fleet.usd_per_s(frozenset(ranked[:index]))
        rows.append(
            {
                "lever": lever,
                "saves_alone": (1 - alone[lever] / base).named("saves_alone", "%"),
                "saves_here": (1 - after / before).named("saves_here", "%"),
                "cost": after,
            }
        )
        before = after
    return rows
