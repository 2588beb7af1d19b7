"""A day's peak: what a fleet sized for it wastes, and how much of that scaling wins back."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.physics.money import rolling_peak
from ridgeline.quantity import Number, ceil, given
from ridgeline.topics import Answer, amount, an_accelerator, count, topic


@topic("diurnal-peak", subject="cost")
def diurnal_peak(
    peak_over_mean: Number = amount("3", "x", "Load at the peak over the day's mean.", least="1"),
    trough_over_mean: Number = amount(
        "0.3", "x", "Load at the trough over the day's mean.", most="1"
    ),
    headroom: Number = amount(
        "0.7", "", "Share of capacity that the peak may use.", least="0.01", most="1"
    ),
    boot_s: Number = amount("10min", "min", "From asking for a replica to its first token."),
    mean_rate: Number = amount(
        "100 requests/s", "requests/s", "The day's mean load.", least="0.001 requests/s"
    ),
    replica_rate: Number = amount(
        "5 requests/s", "requests/s", "Load that fills one replica.", least="0.001 requests/s"
    ),
    accelerator: Accelerator = an_accelerator("h100-sxm", "Accelerator of the replicas."),
    gpus: Number = count(1, "Devices of a replica.", noun="GPUs"),
    price: Number = amount("0 USD/h", "USD/h", "Price of a device; 0 takes the catalog's."),
) -> Answer:
    """Utilisation of a fleet sized for the day's peak, and what scaling with the load recovers.

    The load rises once and falls once a day. Replicas must be up `boot` before they are needed, so
    a scaled fleet follows the highest load within that time; it is never larger than told here.
    """
    day = given(1, "day", name="day_s", source="24 hours")
    peak = (mean_rate * peak_over_mean).named("peak_rate", "requests/s")
    filled = replica_rate * headroom
    fleet = ceil(peak / filled).named("fleet", "replicas")
    bare = (1 / peak_over_mean).named("bare_utilisation", "%", note="no headroom")
    busy = (headroom / peak_over_mean).named("utilisation", "%")
    ahead = rolling_peak(bare / bare, peak_over_mean, trough_over_mean, boot_s, day).named(
        "followed_over_mean", "x", note="fleet that is ahead by the boot time, over the mean"
    )
    recovered = (1 - ahead / peak_over_mean).named("recoverable", "%", note="of the fleet's hours")
    needed = ceil(mean_rate * trough_over_mean / filled)
    trough = (fleet - needed).named("idle_at_trough", "replicas")
    replica = (accelerator.price_or(price) * gpus).named("replica_price", "USD/h")
    sine = (1 + 1 / peak_over_mean) / 2
    return Answer(
        "a peak of {peak_over_mean} the mean leaves the fleet of {fleet} at {utilisation}; "
        "scaling with {boot_s} to start wins back {recoverable} of its hours",
        {
            "utilisation": busy,
            "bare_utilisation": bare,
            "fleet": fleet,
            "recoverable": recovered,
            "scaled_utilisation": (headroom / ahead).named("scaled_utilisation", "%"),
            "boot_cost": ((ahead - 1) / peak_over_mean).named(
                "boot_cost", "%", note="of the fleet's hours, for being ahead"
            ),
            "idle_at_trough": trough,
            "idle_usd_per_day": (fleet * replica * day * (1 - busy)).named(
                "idle_usd_per_day", "USD"
            ),
            "recovered_usd_per_day": (fleet * replica * day * recovered).named(
                "recovered_usd_per_day", "USD"
            ),
            "sine_utilisation": sine.named(
                "sine_utilisation", "%", note="if the ratio is peak to trough of a sine"
            ),
            "replica_price": replica,
        },
        notes=(
            accelerator.price_note(price),
            "peak over mean and peak over trough are often confused: 3x over the mean is 33 % "
            "busy, 3x from trough to peak of a sine is 67 %",
            "trough use: batch inference, evaluations and fine-tuning can have the replicas that "
            "idle there, if they give them back within the boot time",
        ),
    )
