"""Tails, quantiles and means of counts that chance decides, to tell bad luck from a fault.

Closed forms by the incomplete beta and gamma functions, so that a tail of 1e-10 is exact and a
million trials cost no more than ten. Counts and shares are pure numbers.
"""

import math
from collections.abc import Callable

from ridgeline.physics.law import law
from ridgeline.quantity import Number, applied

_TINY = 1e-300
_TERMS = 100_000
_HALVINGS = 60
_TOO_MANY = "too many to count: the series does not converge"


@law
def binomial_tail(trials: Number, least: Number, chance: Number) -> Number:
    """The chance of at least so many among so many trials.

    Source: binomial distribution, as the incomplete beta function I_p(k, n-k+1).
    """
    return applied("binomial_tail", _binomial_tail, trials, least, chance)


@law
def binomial_quantile(trials: Number, chance: Number, confidence: Number) -> Number:
    """The smallest count that a binomial number stays within, with this confidence.

    Source: binomial distribution.
    """
    return applied("binomial_quantile", _binomial_quantile, trials, chance, confidence)


@law
def poisson_tail(mean: Number, least: Number) -> Number:
    """The chance of at least so many where the mean is known.

    Source: Poisson distribution, as the incomplete gamma function P(k, mean).
    """
    return applied("poisson_tail", _poisson_tail, mean, least)


@law
def failing_rate(
    failures: Number, passes: Number, prior_failures: Number = 1.0, prior_passes: Number = 1.0
) -> Number:
    """Mean of what a test's failure rate can be after so many failures and passes.

    Source: beta posterior; the prior of one and one is uniform (Laplace's rule of succession).
    """
    failing = failures + prior_failures
    return failing / (failing + passes + prior_passes)


@law
def failing_rate_quantile(
    confidence: Number,
    failures: Number,
    passes: Number,
    prior_failures: Number = 1.0,
    prior_passes: Number = 1.0,
) -> Number:
    """The failure rate that the true one stays below, with this confidence.

    Source: quantile of the beta posterior.
    """
    shape = (failures + prior_failures, passes + prior_passes)
    return applied("beta_quantile", _beta_quantile, confidence, *shape)


@law
def normal_within(sigmas: Number) -> Number:
    """The share of a normal distribution within so many standard deviations of its mean.

    Source: the error function, erf(z / sqrt 2).
    """
    return applied("normal_within", lambda z: math.erf(z / math.sqrt(2)), sigmas)


@law
def longest_over_mean_exponential(sequences: Number) -> Number:
    """The longest of so many exponential lengths over their mean: the harmonic number.

    Source: order statistics, 1 + 1/2 + ... + 1/n.
    """
    return applied("harmonic", _harmonic, sequences)


@law
def longest_over_mean_uniform(sequences: Number) -> Number:
    """The longest of so many lengths, uniform from 0 on, over their mean: 2n / (n + 1).

    Source: order statistics.
    """
    return 2 * sequences / (sequences + 1)


@law
def two_gangs_deadlock(pods: Number, places: Number) -> Number:
    """The chance that two jobs of so many pods, placed pod by pod at random, both end up partial.

    It does not happen where one of them is whole among the first pods that fill the places:
    1 - 2 C(n, g-n) / C(2n, g).

    Source: hypergeometric distribution.
    """
    return applied("two_gangs_deadlock", _two_gangs_deadlock, pods, places)


def _binomial_tail(trials: float, least: float, chance: float) -> float:
    if least <= 0 or chance >= 1:
        return 1.0
    if least > trials or chance <= 0:
        return 0.0
    return _beta_below(chance, least, trials - least + 1)


def _binomial_quantile(trials: float, chance: float, confidence: float) -> float:
    def is_covered(count: float) -> bool:
        return 1 - _binomial_tail(trials, count + 1, chance) >= confidence

    return _first_whole(is_covered, math.floor(max(trials, 0)))


def _first_whole(holds: Callable[[float], bool], most: int) -> float:
    """The smallest whole number up to `most` for which it holds; `most` where none does."""
    low, high = 0, most
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return float(low)


def _poisson_tail(mean: float, least: float) -> float:
    return 1.0 if least <= 0 else _gamma_below(mean, least)


def _beta_quantile(confidence: float, failing: float, passing: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_low = _beta_below(middle, failing, passing) < confidence
        low, high = (middle, high) if is_low else (low, middle)
    return (low + high) / 2


def _harmonic(count: float) -> float:
    """Sum of 1/i to count; between whole numbers it goes on smoothly (digamma)."""
    near = sum(1 / (count + step) for step in range(1, 17))
    far = count + 17
    tail = 1 / (12 * far**2) - 1 / (120 * far**4) + 1 / (252 * far**6)
    return math.log(far) - 1 / (2 * far) - tail + _EULER - near


_EULER = 0.577215664901532860606512090082402431


def _two_gangs_deadlock(pods: float, places: float) -> float:
    if 2 * pods <= places:
        return 0.0
    if pods > places:
        return 1.0
    whole = 2 * math.exp(_log_ways(pods, places - pods) - _log_ways(2 * pods, places))
    return 1 - min(1.0, whole)


def _log_ways(items: float, taken: float) -> float:
    """The logarithm of the binomial coefficient."""
    return math.lgamma(items + 1) - math.lgamma(taken + 1) - math.lgamma(items - taken + 1)


def _beta_below(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), by Lentz's continued fraction."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta_below(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    log_front += a * math.log(x) + b * math.log1p(-x)
    c, d = 1.0, 1 / _off_zero(1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, _TERMS):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = fraction
        for term in (even, odd):
            d = 1 / _off_zero(1 + term * d)
            c = _off_zero(1 + term / c)
            fraction *= c * d
        if abs(fraction - before) < 1e-15 * abs(fraction):
            return math.exp(log_front) * fraction / a
    raise ArithmeticError(_TOO_MANY)


def _gamma_below(x: float, a: float) -> float:
    """The regularised lower incomplete gamma function P(a, x)."""
    if x <= 0:
        return 0.0
    front = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        for n in range(1, _TERMS):
            term *= x / (a + n)
            total += term
            if term < 1e-16 * total:
                return front * total
        raise ArithmeticError(_TOO_MANY)
    return 1 - front * _gamma_fraction(x, a)


def _gamma_fraction(x: float, a: float) -> float:
    """Lentz's continued fraction of the upper incomplete gamma function."""
    b = x + 1 - a
    c, d = 1 / _TINY, 1 / _off_zero(b)
    fraction = d
    for n in range(1, _TERMS):
        term = -n * (n - a)
        b += 2
        d = 1 / _off_zero(term * d + b)
        c = _off_zero(b + term / c)
        fraction *= d * c
        if abs(d * c - 1) < 1e-15:
            return fraction
    raise ArithmeticError(_TOO_MANY)


def _off_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
