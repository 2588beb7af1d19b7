"""Who pays for a replica's hours: its bill as lines that add up to it exactly. Pure.

    bill = prefill and decode of each use + unsettled + idle + loading + drained

The seconds in which a replica was busy are shared by what ran there, in proportion to the seconds
that the step-time model gives each use; the other seconds are lines of their own, for nobody can
be said to have caused them. All money is whole nano-dollars, shares are rounded down, and what is
left over goes to idle: so no line is negative and the sum is the bill, to the last of them.
Called by `gateway.cost`, which reads the hours and the uses from the ledger.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

NS_PER_HOUR = 3_600_000_000_000
#: Model seconds are weighed as whole picoseconds: finer than any use, and sums stay exact.
_PER_S = 10**12
#: Whose use: what the caller groups by, e.g. (tenant, model).
Use = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Rates:
    """The step-time model as prices of work, in seconds of a replica.

    A prompt token costs `prompt_s`, and `attended_s` more for each token that it attends to; an
    output token costs `output_s`, and `cached_s` for each token in its context. Only proportions
    matter here. `source` says whose step times these are.
    """

    prompt_s: float
    attended_s: float
    output_s: float
    cached_s: float
    source: str


@dataclass(frozen=True, slots=True)
class Work:
    """What some requests did, as sums over them, so that a database can add them up.

    Of one request with a prompt of I tokens, C of them cached, and O tokens of answer: I - C, the
    pairs (I - C)(C + (I - C)/2) that its prefill attends to, O, and the pairs O(I + O/2).
    """

    prompt_tokens: float
    attended_pairs: float
    output_tokens: float
    context_pairs: float


@dataclass(frozen=True, slots=True)
class Hours:
    """What one replica did at one price, in nanoseconds; the price in nano-dollars an hour."""

    nano_usd_per_hour: int
    busy_ns: int
    idle_ns: int = 0
    loading_ns: int = 0
    drained_ns: int = 0

    @property
    def paid_ns(self) -> int:
        """All of it: a replica costs the same whatever it does."""
        return self.busy_ns + self.idle_ns + self.loading_ns + self.drained_ns


@dataclass(frozen=True, slots=True)
class Share:
    """What one use costs, in nano-dollars."""

    prefill: int
    decode: int

    @property
    def busy(self) -> int:
        """Both."""
        return self.prefill + self.decode


@dataclass(frozen=True, slots=True)
class Bill:
    """A replica's bill in nano-dollars. `unsettled` was busy with what has no entry."""

    total: int = 0
    uses: Mapping[Use, Share] = field(default_factory=dict)
    unsettled: int = 0
    idle: int = 0
    loading: int = 0
    drained: int = 0

    @property
    def settled(self) -> int:
        """What uses pay for."""
        return sum(share.busy for share in self.uses.values())

    @property
    def lines(self) -> int:
        """The sum of all lines: it is `total`."""
        return self.settled + self.unsettled + self.idle + self.loading + self.drained


def work(input_tokens: int, cached_tokens: int, output_tokens: int) -> Work:
    """The work of one request; a cached part longer than the prompt counts as the prompt."""
    cached = min(cached_tokens, input_tokens)
    fresh = input_tokens - cached
    return Work(
        fresh,
        fresh * (cached + fresh / 2),
        output_tokens,
        output_tokens * (input_tokens + output_tokens / 2),
    )


def seconds(done: Work, rates: Rates) -> tuple[float, float]:
    """What the work takes of a replica under these rates: prefill and decode."""
    prefill_s = done.prompt_tokens * rates.prompt_s + done.attended_pairs * rates.attended_s
    decode_s = done.output_tokens * rates.output_s + done.context_pairs * rates.cached_s
    return prefill_s, decode_s


def attribute(hours: Sequence[Hours], uses: Mapping[Use, Work], rates: Rates) -> Bill:
    """One replica's bill, shared. `hours` has a row for each price that it had."""
    total = round(sum(_cost(row, row.paid_ns) for row in hours))
    busy = math.floor(sum(_cost(row, row.busy_ns) for row in hours))
    loading = math.floor(sum(_cost(row, row.loading_ns) for row in hours))
    drained = math.floor(sum(_cost(row, row.drained_ns) for row in hours))
    weights = {use: _weigh(seconds(done, rates)) for use, done in uses.items()}
    whole = sum(prefill + decode for prefill, decode in weights.values())
    shares = {
        use: Share(busy * prefill // whole, busy * decode // whole) if whole else Share(0, 0)
        for use, (prefill, decode) in weights.items()
    }
    unsettled = 0 if whole else busy
    # Each part is rounded down, so what is left is never negative.
    settled = sum(share.busy for share in shares.values())
    idle = total - settled - unsettled - loading - drained
    return Bill(total, shares, unsettled, idle, loading, drained)


def _weigh(spent_s: tuple[float, float]) -> tuple[int, int]:
    prefill_s, decode_s = spent_s
    return round(prefill_s * _PER_S), round(decode_s * _PER_S)


def _cost(row: Hours, spent_ns: int) -> Fraction:
    return Fraction(row.nano_usd_per_hour * spent_ns, NS_PER_HOUR)
