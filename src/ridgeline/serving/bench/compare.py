"""Is more throughput better service? Compares runs, and flags the false success.

Tokens per second rise with batch size long after users have stopped being served in time. A
run that gives more tokens and meets its objectives less often is flagged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

from ridgeline.serving.bench.goodput import Goodput
from ridgeline.serving.bench.report import Report

LEAST_RISE = 0.01


@dataclass(frozen=True, slots=True)
class Finding:
    """More tokens, fewer users served in time: what rose, what fell.

    `beyond_chance` is False where so few requests were made that the fall may be luck.
    """

    before: str
    after: str
    tokens_per_s: tuple[float, float]
    goodput_share: tuple[float, float]
    goodput_per_s: tuple[float, float]
    beyond_chance: bool

    def __str__(self) -> str:
        """One sentence for the table."""
        tokens, share, rate = self.tokens_per_s, self.goodput_share, self.goodput_per_s
        luck = "" if self.beyond_chance else "; so few requests may be luck"
        return (
            f"{self.before} -> {self.after}: output rose {_percent(tokens)} to "
            f"{tokens[1]:,.0f} tokens/s while goodput fell from {100 * share[0]:.1f} to "
            f"{100 * share[1]:.1f} % ({rate[0]:.2f} to {rate[1]:.2f} requests/s){luck}"
        )


def _percent(pair: tuple[float, float]) -> str:
    return f"{100 * (pair[1] / pair[0] - 1):.0f} %" if pair[0] > 0 else "from nothing"


def compare(before: Report, after: Report) -> Finding | None:
    """The finding where tokens/s rose (by over 1 %) and the share of goodput fell, else None.

    The two runs must have been held to the same objectives; asking otherwise is our mistake.
    """
    assert before.slo == after.slo, f"different objectives: {before.slo} and {after.slo}"
    tokens = (before.output_tokens_per_s, after.output_tokens_per_s)
    share = (before.goodput.share, after.goodput.share)
    if tokens[1] <= (1 + LEAST_RISE) * tokens[0] or share[1] >= share[0]:
        return None
    return Finding(
        named(before),
        named(after),
        tokens,
        share,
        (before.goodput.per_s, after.goodput.per_s),
        beyond_chance(before.goodput, after.goodput),
    )


def named(report: Report) -> str:
    """A run's name in a comparison: its load."""
    return report.setting.loop


def beyond_chance(before: Goodput, after: Goodput) -> bool:
    """Whether two shares differ by more than two standard errors of their difference.

    Pooled two-proportion z-test; see any statistics text, e.g. Agresti, "Categorical Data
    Analysis", section 3.
    """
    total = before.total + after.total
    if not before.total or not after.total:
        return False
    pooled = (before.good + after.good) / total
    error = sqrt(pooled * (1 - pooled) * (1 / before.total + 1 / after.total))
    return abs(before.share - after.share) > 2 * error


def findings(levels: Sequence[Report], attainment: float) -> list[Finding]:
    """The findings between neighbours of a sweep, from the lowest load to the highest.

    Goodput may give way as load rises, as long as it holds: only falls to below `attainment`
    are findings here.
    """
    ordered = sorted(levels, key=lambda level: level.setting.load or 0.0)
    pairs = [(a, b) for a, b in pairwise(ordered) if b.goodput.share < attainment]
    return [found for a, b in pairs if (found := compare(a, b)) is not None]
