"""Laws of money: what a token, a request and an hour cost; when to buy, when to bid.

Prices are per second in base units (`2.50 USD/h` as people write them).
"""

from ridgeline.physics.law import law
from ridgeline.quantity import Number, Quantity, exp, value_of


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
    return (mean_s + restart_s) * (exp(interval_s / mean_s) - 1) / interval_s


@law
def spot_break_even_exact_s(interval_s: Number, restart_s: Number, discount: Number) -> Number:
    """Mean time between preemptions at which spot costs what on demand does, losses at random.

    Solves (1 - d) (M + R)(e^(C/M) - 1) = C for M.

    Source: Daly 2006, exponential failures, without the cost of writing.
    """
    found = _solved(*(value_of(one) for one in (interval_s, restart_s, discount)))
    if isinstance(interval_s, Quantity):
        args = (interval_s, restart_s, discount)
        return Quantity(found, interval_s.unit, op="solve", args=args)
    return found


_HALVINGS = 80
_LOW, _HIGH = -20.0, 6.0  # natural logarithms of C/M between which the root is looked for


def _solved(interval: Number, restart: Number, discount: Number) -> Number:
    """Bisection on log(C/M), which the stretch rises with."""
    import numpy as np

    shape = np.broadcast_shapes(*(np.shape(one) for one in (interval, restart, discount)))
    low, high = np.full(shape, _LOW), np.full(shape, _HIGH)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        ratio = np.exp(middle)
        stretch = (1 + ratio * restart / interval) * np.expm1(ratio) / ratio
        is_dear = (1 - discount) * stretch > 1
        low, high = np.where(is_dear, low, middle), np.where(is_dear, middle, high)
    found = interval / np.exp((low + high) / 2)
    return found if np.ndim(found) else float(found)


@law
def rolling_peak(
    mean_level: Number, peak_level: Number, trough_level: Number, lead_s: Number, day_s: Number
) -> Number:
    """Mean of a fleet that must be up `lead_s` before a load with one peak and one trough needs it.

    The running maximum over the lead adds the peak for that long and drops the trough for as long.

    Source: exact for any load curve that rises once and falls once a day.
    """
    return mean_level + (peak_level - trough_level) * lead_s / day_s
