"""Tokens and terabytes a second for a dollar, across generations and makers of accelerators."""

from collections.abc import Sequence

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.catalog.models import Model
from ridgeline.errors import SpecError
from ridgeline.physics.money import bytes_per_usd, decode_tokens_per_s, usd_per_token
from ridgeline.quantity import (
    Number,
    Provenance,
    Quantity,
    ceil,
    floor,
    given,
    holds,
    largest,
    smallest,
)
from ridgeline.serving.plan.decode import Decode
from ridgeline.topics import Answer, a_model, amount, an_accelerator, count, numbers, topic

#: Weight formats from wide to narrow.
_FORMATS = ("bf16", "fp8", "fp4")


@topic("tokens-per-dollar", subject="cost")
def tokens_per_dollar(
    model: Model = a_model("llama-3.1-8b"),
    first: Accelerator = an_accelerator("a100-80gb-sxm"),
    second: Accelerator = an_accelerator("h100-sxm"),
    third: Accelerator = an_accelerator("b200-sxm"),
    prices: Sequence[Quantity] = numbers(
        "0 USD/h, 0 USD/h, 0 USD/h",
        "USD/h",
        "Price of each, in the same order; 0 takes the catalog's.",
    ),
    batch: Number = count(1, "Sequences decoded at once.", noun="sequences"),
    context_tokens: Number = amount("0", "tokens", "Cached tokens of each sequence."),
) -> Answer:
    """Decoded tokens a dollar buys on three generations, by weight format, and price ties.

    While memory binds, a dollar buys bandwidth: generations differ little in one format, and the
    steps come from the narrower formats that newer ones compute in.
    """
    chips = (first, second, third)
    if len(prices) != len(chips):
        raise SpecError(
            f"{len(prices)} prices for {len(chips)} accelerators", where="prices", remedy="three"
        )
    told = dict.fromkeys(
        chip.price_note(price, "--prices") for chip, price in zip(chips, prices, strict=True)
    )
    prices = tuple(
        chip.price_or(price, f"device_price_{place}")
        for place, (chip, price) in enumerate(zip(chips, prices, strict=True), 1)
    )
    rows, of_bf16 = [], []
    for chip, price in zip(chips, prices, strict=True):
        found = {
            dtype: _tokens_per_usd(model, chip, price, dtype, batch, context_tokens)
            for dtype in _FORMATS
            if chip.multiplies(dtype)
        }
        if "bf16" not in found:
            raise SpecError(f"{chip.name} has no bf16 units", where="accelerator", remedy="another")
        of_bf16.append(found["bf16"])
        rows.append((chip, price, found))
    ids = [chip.id for chip in chips]
    named = {
        chip.id if ids.count(chip.id) == 1 else f"{chip.id} {place}": one
        for place, (chip, one) in enumerate(zip(chips, of_bf16, strict=True), 1)
    }
    best, worst = largest(**named), smallest(**named)
    spread = (best / worst - 1).named("bf16_spread", "%")
    second_rates, third_rates = rows[1][2], rows[2][2]
    values: dict[str, Quantity] = {
        "bf16_spread": spread,
        "best_bf16": best.named("best_bf16", "tokens/USD"),
    }
    if "fp8" in second_rates:
        values["fp8_step"] = (second_rates["fp8"] / second_rates["bf16"]).named("fp8_step", "x")
    if "fp4" in third_rates and "fp8" in second_rates:
        step = third_rates["fp4"] / second_rates["fp8"]
        values["fp4_step"] = step.named("fp4_step", "x", note="newest in fp4 over middle in fp8")
    return Answer(
        "{first}, {second} and {third} buy the same tokens a dollar in bf16 within {bf16_spread}",
        values,
        table=tuple(
            _row(_rank(found["bf16"], of_bf16), chip, price, found, best)
            for chip, price, found in rows
        ),
        notes=(
            *told,
            "one device is priced; a model that needs several makes as many tokens for each dollar "
            "of them while memory binds",
            "prices are the whole claim: with another price list another generation leads; "
            "`tie_price` is where a generation equals the best in bf16",
            "weight-only formats save the same bytes on older chips; what they lack is units that "
            "compute in them once a large batch makes arithmetic bind",
        ),
    )


def _rank(one: Quantity, of_all: Sequence[Quantity]) -> str:
    """Its place by tokens a dollar in bf16; in a sweep, at every point."""
    return str(1 + sum(holds(other.value > one.value) for other in of_all))


def _tokens_per_usd(
    model: Model, chip: Accelerator, price: Quantity, dtype: str, batch: Number, context: Number
) -> Quantity:
    """Tokens for a dollar on one device; weights in `dtype`, the cache in 16 bits."""
    rate = decode_tokens_per_s(batch, Decode(model, chip, 1.0, dtype).step_s(batch, context))
    told: Quantity = (1 / usd_per_token(price, rate)).named(
        f"{dtype}_tokens_per_usd", "Mtokens/USD"
    )
    return told


def _row(
    rank: str, chip: Accelerator, price: Quantity, found: dict[str, Quantity], best: Quantity
) -> dict[str, Quantity | str]:
    traffic = bytes_per_usd(chip.memory_bytes_per_s, price).named("bytes_per_usd", "PB/USD")
    row: dict[str, Quantity | str] = {
        "rank": rank,
        "accelerator": chip.name,
        "price": price,
        "bandwidth": chip.memory_bytes_per_s,
        "bytes_per_usd": traffic,
    }
    row |= {dtype: found.get(dtype, "no units") for dtype in _FORMATS}
    row["tie_price"] = (price * found["bf16"] / best).named("tie_price", "USD/h")
    return row


@topic("dollars-per-bandwidth", subject="cost")
def dollars_per_bandwidth(
    model: Model = a_model("llama-3.1-70b"),
    accelerator: Accelerator = an_accelerator("mi300x"),
    against: Accelerator = an_accelerator("h100-sxm"),
    price: Number = amount("0 USD/h", "USD/h", "Price of the first; 0 takes the catalog's."),
    against_price: Number = amount(
        "0 USD/h", "USD/h", "Price of the other; 0 takes the catalog's."
    ),
    achieved: Number = amount(
        "1",
        "",
        "Share of its bandwidth that the first reaches.",
        least="0.01",
        most="1",
        interval=("0.6", "0.9"),
    ),
    against_achieved: Number = amount(
        "1",
        "",
        "Share of its bandwidth that the other reaches.",
        least="0.01",
        most="1",
        interval=("0.8", "0.95"),
    ),
    memory_share: Number = amount(
        "0.9", "", "Share of memory for weights and cache.", least="0.01", most="1"
    ),
    context_tokens: Number = amount("8k", "tokens", "Tokens each user holds.", least="1"),
) -> Answer:
    """Dollars for a TB/s on two accelerators, the replica each needs, and what flips the order."""
    told = (
        accelerator.price_note(price),
        against.price_note(against_price, "--against-price"),
    )
    price = accelerator.price_or(price)
    against_price = against.price_or(against_price, "against_device_price")
    ours = bytes_per_usd(accelerator.memory_bytes_per_s * achieved, price)
    theirs = bytes_per_usd(against.memory_bytes_per_s * against_achieved, against_price)
    better = (ours / theirs).named("advantage", "x")
    spec = bytes_per_usd(accelerator.memory_bytes_per_s, price) / bytes_per_usd(
        against.memory_bytes_per_s, against_price
    )
    flip = (against_achieved / spec).named(
        "flip_achieved", "%", note="of its bandwidth; below it the other is cheaper"
    )
    return Answer(
        "{accelerator} buys {advantage} the bandwidth of {against} for a dollar; the order flips "
        "if it reaches under {flip_achieved} of its own"
        if holds(better >= 1)
        else "{accelerator} buys {advantage} the bandwidth of {against} for a dollar; the order "
        "flips at {flip_discount} off its price",
        {
            "advantage": better,
            "flip_achieved": flip,
            "flip_discount": (1 - smallest(ours=better, theirs=1 / better)).named(
                "flip_discount", "%", note="off the dearer one's price makes them equal"
            ),
            "price_of_tb_s": _of_a_tb_s(ours, "price_of_tb_s"),
            "against_price_of_tb_s": _of_a_tb_s(theirs, "against_price_of_tb_s"),
        },
        table=tuple(
            _replica(model, chip, cost, memory_share, context_tokens)
            for chip, cost in ((accelerator, price), (against, against_price))
        ),
        notes=(
            *told,
            "on paper is not achieved: kernels that reach less of the newer memory eat the "
            "advantage, and how much of it may be lost is the flip fraction",
        ),
    )


def _of_a_tb_s(per_usd: Quantity, name: str) -> Quantity:
    """What one terabyte a second costs an hour."""
    told: Quantity = (
        given(1, "TB/s", name="one_tb_s", provenance=Provenance.DEFINED) / per_usd
    ).named(name, "USD/h")
    return told


def _replica(
    model: Model, chip: Accelerator, price: Quantity, share: Number, context: Number
) -> dict[str, Quantity | str]:
    """The fewest devices that hold the weights and one full context, and what is left for users."""
    weights, user = model.weights_bytes("bf16"), model.cache_bytes(context)
    usable = (chip.memory_bytes * share).named("usable_bytes")
    needed = ceil((weights + user) / usable).named("replica_gpus", "GPUs")
    left = needed * usable - weights
    return {
        "accelerator": chip.name,
        "memory": chip.memory_bytes,
        "replica_gpus": needed,
        "replica_price": (needed * price).named("replica_price", "USD/h"),
        "replica_users": floor(left / user).named("replica_users", "users"),
        "replica_bandwidth": (needed * chip.memory_bytes_per_s).named("replica_bytes_per_s"),
    }
