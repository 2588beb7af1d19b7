"""A day's peak: how busy a fleet is that is sized for it, and what scaling wins back (S093).

A day of requests whose peak is some times the mean, on replicas that each serve so many at once.
The fixed fleet carries the peak with some headroom; the scaled one follows the demand, and takes
as long to start a replica as it takes. Both are simulated beside the arithmetic.
"""

from dataclasses import dataclass
from math import ceil

from ridgeline.physics.money import rolling_peak
from ridgeline.quantity import value_of
from ridgeline.serving.fake.timing import Machine, Plain
from ridgeline.serving.policy.scale import Settings, Step
from ridgeline.serving.simulate.outcome import Outcome
from ridgeline.serving.simulate.profile import DAY_S, Profile, parse_profile
from ridgeline.serving.simulate.setup import Engine, Model, Scaling, Serving
from ridgeline.serving.simulate.traffic import Seeded, Traffic
from ridgeline.serving.simulate.world import simulate
from ridgeline.workload import parse_arrivals, parse_sizes

#: An answer takes 20 s: 20 tokens of a second each.
_TOKENS, _STEP_S = 20, 1.0
_ANSWER_S = _TOKENS * _STEP_S
_SLOTS = 3  # of a replica: a tenth of the peak, without headroom


@dataclass(frozen=True, slots=True)
class Day:
    """What a fleet did in a day: how full its slots were, and what it took.

    `replicas` were started in all; the `fewest` were wanted at the trough.
    """

    replicas: int
    utilisation: float
    replica_hours: float
    answered: float
    ttft_p99_s: float
    fewest: int


def recoverable(peak_over_mean: float, trough_over_mean: float, start_s: float) -> float:
    """Of a fixed fleet's hours, what one that is ahead by its start leaves, by the arithmetic.

    The most there is: real replicas are whole, and requests that come at random have peaks too.
    """
    ahead = value_of(rolling_peak(1.0, peak_over_mean, trough_over_mean, start_s, DAY_S))
    return 1 - float(ahead) / peak_over_mean


def trough_over_mean(peak_over_mean: float) -> float:
    """The day's lowest rate."""
    return min(rate for _, rate in _profile(peak_over_mean).pieces)


def _profile(peak_over_mean: float) -> Profile:
    return parse_profile(f"diurnal:{peak_over_mean}")


def fixed(peak_over_mean: float, headroom: float, mean_per_s: float = 0.35) -> Day:
    """A fleet that carries the peak with this share of its slots."""
    replicas = ceil(round(mean_per_s * peak_over_mean * _ANSWER_S / (_SLOTS * headroom), 6))
    return _day(_model(replicas, None), peak_over_mean, mean_per_s)


def scaled(peak_over_mean: float, headroom: float, start_s: float, mean_per_s: float = 0.35) -> Day:
    """A fleet that follows the demand, as full; it is never larger than the fixed one."""
    most = ceil(round(mean_per_s * peak_over_mean * _ANSWER_S / (_SLOTS * headroom), 6))
    settings = Settings(1, most, _SLOTS * headroom, Step(most, 60.0), down_after_s=start_s)
    model = _model(1, Scaling(settings, every_s=30.0), start_s)
    return _day(model, peak_over_mean, mean_per_s)


def _model(replicas: int, scaling: Scaling | None, start_s: float = 0.0) -> Model:
    engine = Engine(Machine(Plain(_STEP_S, 0.0, 1e9), 100_000), max_seqs=_SLOTS)
    return Model("chat", engine, replicas, scaling, {"start": start_s}, "least-load", slots=_SLOTS)


def _day(model: Model, peak_over_mean: float, mean_per_s: float) -> Day:
    asks = Seeded(
        parse_arrivals("poisson"),
        parse_sizes("10", where="day"),
        parse_sizes(str(_TOKENS), where="day"),
        mean_per_s,
        round(mean_per_s * DAY_S),
        _profile(peak_over_mean),
    )
    outcome = simulate(Serving((model,)), Traffic(asks, "chat").clients(1))
    there_s = sum(one.there_s for one in outcome.replicas)
    return Day(
        max(1, len(outcome.replicas)),
        outcome.requests * _ANSWER_S / (there_s * _SLOTS),
        outcome.replica_hours,
        float(outcome.answered.mean()),
        _p99(outcome),
        _fewest(outcome),
    )


def _fewest(outcome: Outcome) -> int:
    """Wanted at once, from the first hour on: it begins with what it is given."""
    counts = [count for at_s, _, count, _ in outcome.scaled if 3600 <= at_s <= DAY_S]
    return min(counts, default=len(outcome.replicas))


def _p99(outcome: Outcome) -> float:
    late = sorted(outcome.ttft_s())
    return float(late[int(0.99 * len(late))])
