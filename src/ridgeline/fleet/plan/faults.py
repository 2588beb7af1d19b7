"""A device that fails some tests and passes others: how often it fails, and whether to take it."""

from ridgeline.catalog.accelerators import Accelerator
from ridgeline.physics.chance import failing_rate, failing_rate_quantile
from ridgeline.physics.evidence import chance_of_any_failure, tests_to_see
from ridgeline.quantity import Number, ceil, holds, largest
from ridgeline.topics import Answer, amount, an_accelerator, count, topic


@topic("intermittent-fault", subject="fleet")
def intermittent_fault(
    fails: Number = count(2, "Tests that the device failed.", noun="tests", least=0),
    passes: Number = count(1, "Tests that it passed.", noun="tests", least=0),
    prior_fails: Number = amount("1", "", "Fails that are believed beforehand.", least="0.01"),
    prior_passes: Number = amount("1", "", "Passes that are believed beforehand.", least="0.01"),
    confidence: Number = amount("0.95", "", "Share of belief in the interval.", least="0.01",
                                most="0.9999"),
    limit: Number = amount("0.05", "", "Failure rate that may be lived with.", least="0.0001",
                           most="0.99"),
    runs: Number = count(20, "Jobs that it would run until it is tested again.", noun="jobs"),
    job_gpus: Number = count(512, "GPUs that wait when one job fails.", noun="GPUs"),
    lost_s: Number = amount("20 min", "min", "Time that a failed job loses."),
    accelerator: Accelerator = an_accelerator("h100-sxm", "The device whose time is lost."),
    price_usd_per_s: Number = amount("0 USD/h", "USD/h", "Value of a GPU; 0: the catalog's."),
    reject_usd: Number = amount("2000 USD", "USD", "Cost of pulling and replacing the device."),
) -> Answer:  # fmt: skip
    """Failure rate of a device that fails some tests, accept or reject, and the cost of a miss."""
    each = accelerator.price_or(price_usd_per_s)
    alpha = (fails + prior_fails).named("alpha")
    beta = (passes + prior_passes).named("beta")
    tail = ((1 - confidence) / 2).named("tail")
    mean = failing_rate(fails, passes, prior_fails, prior_passes)

    def bound(share: Number) -> Number:
        return failing_rate_quantile(share, fails, passes, prior_fails, prior_passes)

    miss_usd = (job_gpus * lost_s * each).named("cost_of_a_miss", "USD")
    missed = chance_of_any_failure(runs, alpha, beta).named("chance_of_a_miss", "%")
    # Taken in and failing, it costs a job first and is then pulled all the same.
    accept_usd = (missed * (miss_usd + reject_usd)).named("accept_cost", "USD")
    more = largest(none=0, tests=ceil(alpha / limit - (alpha + beta)))
    verdict = "accept" if holds(accept_usd < reject_usd) else "reject"
    return Answer(
        f"{verdict}: it fails {{mean}} of tests ({{low}} to {{high}}); accepting costs "
        "{accept_cost}, rejecting {reject_cost}",
        {
            "mean": mean.named("mean", "%", note="of tests that it fails"),
            "low": bound(tail).named("low", "%"),
            "high": bound(1 - tail).named("high", "%"),
            "cost_of_a_miss": miss_usd,
            "chance_of_a_miss": missed,
            "accept_cost": accept_usd,
            "reject_cost": reject_usd,
            "clean_tests_needed": more.named("clean_tests_needed", "tests"),
            "tests_to_see_limit": tests_to_see(limit, confidence).named("tests_to_see", "tests"),
            "limit_passes_all": ((1 - limit) ** passes).named(
                "limit_passes_all", "%", note="of devices that fail just that often pass as many"
            ),
        },
        notes=(accelerator.price_note(price_usd_per_s, "--price-usd-per-s"), *_NOTES),
    )


_NOTES = (
    "A pass after fails is no cure: a device that fails in some runs passes in others. Two fails "
    "and a pass are a fault that was shown.",
    "clean_tests_needed more passes in a row bring the mean down to the limit; tests_to_see_limit "
    "are needed to catch a device which fails just that often.",
    "n clean tests bound the rate by about 3/n with 95 % confidence, and by nothing better.",
)
