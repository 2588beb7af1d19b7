"""What passes, failures and faults say about a device: posteriors, and counts over a time."""

import math

from ridgeline.physics.chance import poisson_tail
from ridgeline.physics.law import law
from ridgeline.quantity import Number, applied, ceil, exp, log, smallest

_ALMOST_SURE = 1 - 1e-12


@law
def chance_of_any_failure(runs: Number, alpha: Number, beta: Number) -> Number:
    """Chance that at least one of so many runs fails, when the rate is known only as a Beta.

    Source: beta-binomial distribution, none of n: B(a, b + n) / B(a, b).
    """
    return applied("chance_of_any_failure", _chance_of_any_failure, runs, alpha, beta)


@law
def tests_to_see(rate: Number, confidence: Number) -> Number:
    """Tests that a device with this failure rate fails at least once, with so much confidence.

    Source: geometric distribution, 1 - (1 - rate)^n.
    """
    sure = smallest(confidence=confidence, almost_sure=_ALMOST_SURE)
    seen = smallest(rate=rate, almost_sure=_ALMOST_SURE)
    return ceil(log(1 - sure) / log(1 - seen))


@law
def faults_until(threshold: Number, mean: Number) -> Number:
    """Faults that are seen of a device which goes at its threshold-th: the expected min(N, k).

    Source: Poisson distribution, sum of the chances of at least 1 to k.
    """
    return applied("faults_until", _faults_until, threshold, mean)


@law
def share_after(threshold: Number, mean: Number) -> Number:
    """Share of the time that is left, on average, once the threshold-th fault has come.

    Source: Erlang arrival of the k-th Poisson fault: P(N >= k) - k/m P(N >= k + 1).
    """
    return applied("share_after", _share_after, threshold, mean)


@law
def faulty_chance(
    faults: Number, seen_s: Number, faulty_share: Number, faulty_mean_s: Number, good_mean_s: Number
) -> Number:
    """Chance that a device is one of the faulty few, after so many faults in a time.

    Source: Bayes' rule with Poisson faults at two rates.
    """
    odds_against = (1 - smallest(share=faulty_share, almost_sure=_ALMOST_SURE)) / faulty_share
    rarer = (
        faults * log(faulty_mean_s / good_mean_s) + seen_s / faulty_mean_s - seen_s / good_mean_s
    )
    return 1 / (1 + odds_against * exp(smallest(evidence=rarer, most=_MOST_EXPONENT)))


#: Beyond it exp() of a double is infinite.
_MOST_EXPONENT = 700.0


def _chance_of_any_failure(runs: float, alpha: float, beta: float) -> float:
    none = (
        math.lgamma(beta + runs) + math.lgamma(alpha + beta)
        - math.lgamma(beta) - math.lgamma(alpha + beta + runs)
    )  # fmt: skip
    return -math.expm1(none)


def _faults_until(threshold: float, mean: float) -> float:
    # The sum in closed form: n p_n = m p_(n-1), so that no threshold takes long.
    k = math.ceil(threshold)
    return float(mean * (1 - poisson_tail(mean, k - 1)) + k * poisson_tail(mean, k))


def _share_after(threshold: float, mean: float) -> float:
    k = math.ceil(threshold)
    return max(0.0, float(poisson_tail(mean, k) - k / mean * poisson_tail(mean, k + 1)))
