"""Laws of money: what a token, a request and an hour cost; when to buy, when to bid.

Prices are per second in base units (`2.50 USD/h` as people write them).
"""

import math

from ridgeline.physics.law import law
from ridgeline.quantity import Number, applied, exp, largest, smallest


@law
def usd_per_token(price_usd_per_s: Number, rate_tokens_per_s: Number) -> Number:
    """Cost of a token made at a rate by something that costs a price.

    Source: price over rate.
    """
    return price_usd_per_s / rate_tokens_per_s


@law
def decode_tokens_per_s(batch: Number, step_s: Number, made_tokens: Number = 1.0) -> Number:
    """Tokens that are paid for each second: one a sequence and step.

    Source: each decode step makes one token for every sequence of the batch.
    """
    return batch * made_tokens / step_s


@law
def training_usd_per_token(
    training_flop_per_token: Number, price_usd_per_s: Number, peak_flop_per_s: Number, mfu: Number
) -> Number:
    """Cost of one trained token: FLOPs over the FLOPs that a dollar buys.

    Source: PaLM, 2022 (MFU), and the price of the chip.
    """
    return training_flop_per_token * price_usd_per_s / (peak_flop_per_s * mfu)


@law
def bytes_per_usd(memory_bytes_per_s: Number, price_usd_per_s: Number) -> Number:
    """Bytes of memory traffic that a dollar buys: what decoding is paid by while memory binds.

    Source: bandwidth over price.
    """
    return memory_bytes_per_s / price_usd_per_s


@law
def owned_usd(
    capex_usd: Number,
    residual: Number,
    drawn_w: Number,
    energy_usd_per_j: Number,
    operations_per_s: Number,
    horizon_s: Number,
) -> Number:
    """What owning costs over a horizon: lost value, energy, operations.

    `operations_per_s` is the share of the purchase that running it costs each second; the machine
    is powered all the time, busy or not.

    Source: straight accounting of ownership, without interest.
    """
    lost = capex_usd * (1 - residual)
    return lost + drawn_w * energy_usd_per_j * horizon_s + capex_usd * operations_per_s * horizon_s


@law
def break_even_utilisation(
    owned_total_usd: Number, rent_usd_per_s: Number, horizon_s: Number
) -> Number:
    """Share of the hours that must be needed for owning to cost what renting those hours does.

    Source: owned cost over the rent of every hour.
    """
    return owned_total_usd / (rent_usd_per_s * horizon_s)


@law
def aged_residual(residual: Number, age_s: Number, horizon_s: Number) -> Number:
    """Share of the price left at another age, when value falls by the same share each year.

    Source: declining balance.
    """
    return residual ** (age_s / horizon_s)


@law
def preemption_waste_s(interval_s: Number, restart_s: Number, lost_part: Number = 0.5) -> Number:
    """Work lost with each preemption: half a checkpoint interval on average, and the restart.

    Source: Young 1974; first order, no loss while work is done again.
    """
    return interval_s * lost_part + restart_s


@law
def spot_break_even_s(waste_s: Number, discount: Number) -> Number:
    """Mean time between preemptions at which spot costs what on demand does, to first order.

    Source: price (1 - d) over useful share 1 - waste/M equals 1.
    """
    return waste_s / discount


@law
def spot_stretch(interval_s: Number, restart_s: Number, mean_s: Number) -> Number:
    """Wall time over useful time when losses come at random: (M + R)(e^(C/M) - 1) / C.

    Every interval is tried until it survives, and every failure pays the restart.

    Source: Daly 2006, exponential failures, without the cost of writing.
    """
    # Beyond it exp() of a double is infinite, and the work is as good as never done.
    tries = smallest(ratio=interval_s / mean_s, most=_MOST_EXPONENT)
    return (mean_s + restart_s) * (exp(tries) - 1) / interval_s


@law
def spot_break_even_exact_s(interval_s: Number, restart_s: Number, discount: Number) -> Number:
    """Mean time between preemptions at which spot costs what on demand does, losses at random.

    Solves (1 - d) (M + R)(e^(C/M) - 1) = C for M.

    Source: Daly 2006, exponential failures, without the cost of writing.
    """
    return interval_s / applied("losses_an_interval", _losses, restart_s / interval_s, discount)


_MOST_EXPONENT = 700.0
_HALVINGS = 80
_LOW, _HIGH = -20.0, 6.0  # natural logarithms of C/M between which the root is looked for


def _losses(restart_part: float, discount: float) -> float:
    """The C/M at which the discount is used up: bisection on its logarithm, which costs rise with.

    `restart_part` is the restart over the interval.
    """
    low, high = _LOW, _HIGH
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        ratio = math.exp(middle)
        stretch = (1 + ratio * restart_part) * math.expm1(ratio) / ratio
        low, high = (low, middle) if (1 - discount) * stretch > 1 else (middle, high)
    return math.exp((low + high) / 2)


@law
def rolling_peak(
    mean_level: Number, peak_level: Number, trough_level: Number, lead_s: Number, day_s: Number
) -> Number:
    """Mean of a fleet that must be up `lead_s` before a load with one peak and one trough needs it.

    The highest load within the lead adds the peak for that long and drops as much of the trough.
    Around a trough that is not flat a little less is dropped: the fleet is never larger than this.

    Source: integral of a running maximum over a day that rises once and falls once.
    """
    ahead = mean_level + (peak_level - trough_level) * lead_s / day_s
    return smallest(ahead=ahead, peak=largest(peak=peak_level, mean=mean_level))
