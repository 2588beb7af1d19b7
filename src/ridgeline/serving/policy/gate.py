"""Is a new version worse than the old one? A test that may be looked at after every request. Pure.

Times (TTFT, TPOT) are compared by their logarithms, so that a difference is a ratio: with the
estimate D of the mean difference and its variance V, the mixture likelihood ratio

    L = sqrt(V / (V + t2)) exp(t2 D^2 / (2 V (V + t2)))            t2: the square of the effect

(D beyond a margin) exceeds 1/alpha at any time with a probability of at most alpha where both are
the same (Robbins 1970; for two samples Johari, Pekelis and Walsh 2015). Both must get their
requests at the same time, and like must be compared with like: a new version has fewer replicas,
whose caches are cold. So the difference is taken among requests with as many tokens to compute and
as many others at their replica (`stratum`), and the mean over groups is weighted by their worth.

Errors are rare, so they are counted: each is the new version's with the probability of its share
of requests, were both the same. The likelihood ratio against being `r` times as likely, averaged
over some r, is bounded in the same way (Ville 1939).

What is found to be worse ends the rollout at once. Who is not, after the planned number of requests
and once enough of them were alike, has passed: a true effect of `effect` would have been found with
a probability of `power`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from math import exp, log, log2, sqrt
from statistics import NormalDist

#: How much the logarithm of a TTFT varies, until enough was seen: p99 is 3.2 times the median.
USUAL_VARIANCE = 0.25
#: So many requests tell how much it varies.
_ENOUGH = 30
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


#: By `stratum`.
Strata = Mapping[int, Moments]


def stratum(uncached_tokens: int, others: int) -> int:
    """Which group a request belongs to: tokens that its replica had to compute, others there.

    What differs by less than a fifth is the same.
    """
    return 256 * _step(uncached_tokens) + _step(others)


def _step(amount: int) -> int:
    """Four steps for each doubling."""
    return round(4 * log2(amount + 1))


@dataclass(frozen=True, slots=True)
class Arm:
    """What was seen of one version since both have been asked; times by `stratum`."""

    requests: int = 0
    errors: int = 0
    ttft: Strata = field(default_factory=dict)
    tpot: Strata = field(default_factory=dict)

    def saw(self, group: int, ttft_s: float | None, tpot_s: float | None) -> "Arm":
        """With one more answer; a time is None where there was none."""
        return replace(
            self,
            requests=self.requests + 1,
            ttft=_saw(self.ttft, group, ttft_s),
            tpot=_saw(self.tpot, group, tpot_s),
        )

    def failed(self) -> "Arm":
        """With one more request that it did not answer."""
        return replace(self, requests=self.requests + 1, errors=self.errors + 1)

    @property
    def variance(self) -> float | None:
        """Of one logarithm of a TTFT among its like; None where too little was seen."""
        return _pooled(self.ttft)

    def and_also(self, other: "Arm") -> "Arm":
        """What two workers have seen of it."""
        return Arm(
            self.requests + other.requests,
            self.errors + other.errors,
            _both(self.ttft, other.ttft),
            _both(self.tpot, other.tpot),
        )


@dataclass(frozen=True, slots=True)
class Criteria:
    """What would be worse, and how sure one must be.

    `effect` is a ratio of times that must be found with probability `power`; `alpha` is the
    probability to find something where nothing is, over all gates together. Up to `margin` is not
    worse: conditions are alike, and not the same. No verdict before `least` requests of the new
    version.
    """

    effect: float = 1.2
    margin: float = 1.05
    alpha: float = 0.05
    power: float = 0.95
    least: int = 30

    @property
    def beyond(self) -> float:
        """The logarithm of the effect beyond the margin."""
        return log(self.effect / self.margin)

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
    """One gate's evidence: how many times as large the new one's number is, and whether it counts.

    `is_sure` says that an effect would have been found by now.
    """

    name: str
    ratio: float | None
    is_worse: bool
    reason: str
    is_sure: bool = True


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
    unsure = [gate.name for gate in gates if not gate.is_sure]
    if unsure:
        reason = f"too few requests were alike to tell ({', '.join(unsure)})"
        return Judgement(Verdict.WAIT, gates, planned, reason)
    return Judgement(Verdict.PASS, gates, planned, f"nothing worse in {new.requests} requests")


@dataclass(frozen=True, slots=True)
class Planned:
    """How many requests of the new version a step is to see, by how times vary."""

    requests: int
    variance: float


def planned(
    old: Arm, share: float, criteria: Criteria, variance: float = USUAL_VARIANCE
) -> Planned:
    """Before a step in which the new version gets this share of the requests.

    `variance` is what was known before; enough requests of the old version tell it anew.
    """
    seen = old.variance if old.requests >= _ENOUGH else None
    known = variance if seen is None else seen
    return Planned(sample_size(known, share, criteria), known)


def sample_size(variance: float, share: float, criteria: Criteria) -> int:
    """Requests of the new version until `effect` is found with `power`.

    `variance` is that of one logarithm of a time, from the old version; `share` is the part of
    all requests that the new one gets (0 to 1, both excluded).
    """

    def is_enough(count: int) -> bool:
        return _finds(variance * (1 / count + share / ((1 - share) * count)), criteria)

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


def _finds(spread: float, criteria: Criteria) -> bool:
    """Whether the effect is found with the power, when the difference has this variance."""
    quantile = NormalDist().inv_cdf(criteria.power)
    boundary = _boundary(spread, criteria.beyond**2, criteria.of_one)
    return boundary + quantile * sqrt(spread) <= criteria.beyond


def _boundary(spread: float, effect2: float, alpha: float) -> float:
    """The smallest difference for which the likelihood ratio is 1/alpha."""
    total = spread + effect2
    return sqrt(2 * spread * total / effect2 * (log(1 / alpha) + log(total / spread) / 2))


def _times(name: str, old: Strata, new: Strata, criteria: Criteria) -> Gate:
    of_old, of_new = _pooled(old), _pooled(new)
    shared = [group for group in new if group in old]
    if of_old is None or of_new is None or not shared:
        return Gate(name, None, False, f"{name}: too little was seen")
    seen = [(old[group], new[group]) for group in shared]
    counts = sum(after.count for _, after in seen), sum(before.count for before, _ in seen)
    spreads = [of_old / before.count + of_new / after.count for before, after in seen]
    if not all(spreads):  # nothing varies: what is seen is what is
        spreads = [1 / before.count + 1 / after.count for before, after in seen]
    differences = (after.mean - before.mean for before, after in seen)
    whole = sum(1 / spread for spread in spreads)
    difference = sum(d / s for d, s in zip(differences, spreads, strict=True)) / whole
    ratio = exp(difference)
    said = f"{name} {ratio:.2f} times that of before ({counts[0]} and {counts[1]} requests)"
    if not of_old and not of_new:
        return Gate(name, ratio, difference >= log(criteria.effect), said)
    boundary = _boundary(1 / whole, criteria.beyond**2, criteria.of_one)
    is_worse = difference > log(criteria.margin) + boundary
    return Gate(name, ratio, is_worse, said, _finds(1 / whole, criteria))


def _pooled(strata: Strata) -> float | None:
    """The variance within groups; None where no group has two."""
    freedom = sum(one.count - 1 for one in strata.values())
    return sum(one.squares for one in strata.values()) / freedom if freedom > 0 else None


def _saw(strata: Strata, group: int, value: float | None) -> Strata:
    if value is None or value <= 0:
        return strata
    return {**strata, group: strata.get(group, Moments()).saw(value)}


def _both(one: Strata, other: Strata) -> Strata:
    groups = {*one, *other}
    return {
        group: one.get(group, Moments()).and_also(other.get(group, Moments())) for group in groups
    }


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
