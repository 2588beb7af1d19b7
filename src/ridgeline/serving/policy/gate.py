"""Is a new version worse than the old one? A test that may be looked at after every request. Pure.

Times (TTFT, TPOT) are compared by their logarithms, so that a difference is a ratio: with the
estimate D of the mean difference and its variance V, the mixture likelihood ratio

    L = sqrt(V / (V + t2)) exp(t2 D^2 / (2 V (V + t2)))            t2: the square of the effect

exceeds 1/alpha at any time with a probability of at most alpha where both are the same (Robbins
1970; for two samples Johari, Pekelis and Walsh 2015). Of a time that does not run in the same
conditions on both sides this says nothing: both must get their requests at the same time.

Errors are rare, so they are counted: each is the new version's with the probability of its share
of requests, were both the same. The likelihood ratio against being `r` times as likely, averaged
over some r, is bounded in the same way (Ville 1939).

What is found to be worse before the planned number of requests ends the rollout; who is not by
then has passed, and a true effect of `effect` would have been found with a probability of `power`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from math import exp, log, sqrt
from statistics import NormalDist

#: An error is so many times as likely.
_RATIOS = (2.0, 5.0, 20.0)


@dataclass(frozen=True, slots=True)
class Moments:
    """Count, mean and sum of squared deviations (Welford) of some logarithms."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def saw(self, value: float) -> "Moments":
        """With one more value, of which the logarithm counts."""
        logarithm = log(value)
        count = self.count + 1
        delta = logarithm - self.mean
        mean = self.mean + delta / count
        return Moments(count, mean, self.squares + delta * (logarithm - mean))

    def and_also(self, other: "Moments") -> "Moments":
        """Of what both have seen (Chan, Golub and LeVeque 1979)."""
        count = self.count + other.count
        if not count:
            return self
        delta = other.mean - self.mean
        mean = self.mean + delta * other.count / count
        squares = self.squares + other.squares + delta**2 * self.count * other.count / count
        return Moments(count, mean, squares)

    @property
    def variance(self) -> float:
        """Of one value."""
        return self.squares / (self.count - 1) if self.count > 1 else 0.0


def moments(values: Iterable[float]) -> Moments:
    """Of all of them."""
    found = Moments()
    for value in values:
        found = found.saw(value)
    return found


@dataclass(frozen=True, slots=True)
class Arm:
    """What was seen of one version since both have been asked."""

    requests: int = 0
    errors: int = 0
    ttft: Moments = Moments()
    tpot: Moments = Moments()

    def and_also(self, other: "Arm") -> "Arm":
        """What two workers have seen of it."""
        return Arm(
            self.requests + other.requests,
            self.errors + other.errors,
            self.ttft.and_also(other.ttft),
            self.tpot.and_also(other.tpot),
        )


@dataclass(frozen=True, slots=True)
class Criteria:
    """What would be worse, and how sure one must be.

    `effect` is a ratio of times that must be found with probability `power`; `alpha` is the
    probability to find something where nothing is, over all gates together. No verdict before
    `least` requests of the new version.
    """

    effect: float = 1.2
    alpha: float = 0.05
    power: float = 0.95
    least: int = 30

    @property
    def of_one(self) -> float:
        """What of `alpha` each of the three gates gets."""
        return self.alpha / 3


class Verdict(Enum):
    """What follows."""

    WAIT = "wait"
    PASS = "pass"  # noqa: S105
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate's evidence: how many times as large the new one's number is, and how sure."""

    name: str
    ratio: float | None
    is_worse: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict, the gates it comes from, and how many requests were planned."""

    verdict: Verdict
    gates: tuple[Gate, ...]
    planned: int
    reason: str


def judge(old: Arm, new: Arm, planned: int, criteria: Criteria) -> Judgement:
    """The verdict after what was seen; `planned` is what `sample_size` said beforehand."""
    gates = (
        _times("TTFT", old.ttft, new.ttft, criteria),
        _times("TPOT", old.tpot, new.tpot, criteria),
        _errors(old, new, criteria),
    )
    worse = [gate for gate in gates if gate.is_worse]
    if new.requests < criteria.least:
        reason = f"{new.requests} of at least {criteria.least} requests"
        return Judgement(Verdict.WAIT, gates, planned, reason)
    if worse:
        reason = "; ".join(gate.reason for gate in worse)
        return Judgement(Verdict.FAIL, gates, planned, reason)
    if new.requests < planned:
        return Judgement(Verdict.WAIT, gates, planned, f"{new.requests} of {planned} requests")
    return Judgement(Verdict.PASS, gates, planned, f"nothing worse in {new.requests} requests")


def sample_size(variance: float, share: float, criteria: Criteria) -> int:
    """Requests of the new version until `effect` is found with `power`.

    `variance` is that of one logarithm of a time, from the old version; `share` is the part of
    all requests that the new one gets (0 to 1, both excluded).
    """
    effect = log(criteria.effect)
    quantile = NormalDist().inv_cdf(criteria.power)

    def is_enough(count: int) -> bool:
        spread = variance * (1 / count + share / ((1 - share) * count))
        return _boundary(spread, effect**2, criteria.of_one) + quantile * sqrt(spread) <= effect

    if variance <= 0:
        return criteria.least
    high = criteria.least
    while not is_enough(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return max(high, criteria.least)


def _boundary(spread: float, effect2: float, alpha: float) -> float:
    """The smallest difference for which the likelihood ratio is 1/alpha."""
    total = spread + effect2
    return sqrt(2 * spread * total / effect2 * (log(1 / alpha) + log(total / spread) / 2))


def _times(name: str, old: Moments, new: Moments, criteria: Criteria) -> Gate:
    if old.count < 2 or new.count < 2:
        return Gate(name, None, False, f"{name}: too little was seen")
    spread = old.variance / old.count + new.variance / new.count
    difference = new.mean - old.mean
    ratio = exp(difference)
    said = f"{name} {ratio:.2f} times that of before ({new.count} and {old.count} requests)"
    if spread <= 0:
        return Gate(name, ratio, difference >= log(criteria.effect), said)
    boundary = _boundary(spread, log(criteria.effect) ** 2, criteria.of_one)
    return Gate(name, ratio, difference > boundary, said)


def _errors(old: Arm, new: Arm, criteria: Criteria) -> Gate:
    if not old.requests or not new.requests:
        return Gate("errors", None, False, "errors: too little was seen")
    share = new.requests / (old.requests + new.requests)
    said = (
        f"{new.errors} of {new.requests} requests failed, "
        f"of the old version {old.errors} of {old.requests}"
    )
    ratio = (new.errors / new.requests) / (old.errors / old.requests) if old.errors else None
    weights = [_likelihood(new.errors, old.errors, share, times) for times in _RATIOS]
    likelihood = sum(weights) / len(weights)
    return Gate("errors", ratio, likelihood >= 1 / criteria.of_one, said)


def _likelihood(new: int, old: int, share: float, times: float) -> float:
    """How much better `times` as many errors explain what was seen than as many."""
    of_new = times * share / (times * share + 1 - share)
    exponent = new * log(of_new / share) + old * log((1 - of_new) / (1 - share))
    return exp(min(exponent, 700.0))
